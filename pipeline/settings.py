"""
Defaults of the process environment, set before Ray, Prefect, MLflow or transformers are imported.

Importing this module is enough; what the user has set already stays as it is. Workers get the same values, because Ray
hands the driver's environment on.
"""

import os

DEFAULTS = {
    # No program phones home.
    "DO_NOT_TRACK": "true",  # MLflow takes this word only
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # A name on a model hub without network fails at once instead of after its retries.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    # Tokenizing in forked workers warns or hangs otherwise; ours is parallel by shard.
    "TOKENIZERS_PARALLELISM": "false",
    # A local cluster without this writes a token into the home folder and asks for it from then on.
    "RAY_AUTH_MODE": "disabled",
    # Without a dashboard Ray Train asks for a state that nobody keeps, and complains each second.
    "RAY_TRAIN_ENABLE_STATE_TRACKING": "0",
    # How often the controller looks at reports; the default of 2 s holds short runs up.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "1",
    # The first start of Prefect's own server lays out its database; 20 s are too few on a busy machine.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}

for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)
