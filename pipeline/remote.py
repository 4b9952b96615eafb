"""
Buckets: one place that says where they are, who asks, and how often.

Three libraries read and write them: obstore (small objects, folders), polars (tables), pyarrow (files that are read or
written piece by piece; Ray's checkpoints). Endpoint and credentials come from the usual variables, AWS_ENDPOINT_URL,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ALLOW_HTTP, or from where the machine
keeps them; none of them is ever written down. What answers 503 is asked again, by obstore and polars as they come; what
answers 403 is not.
"""

import errno
import os
from typing import Any, cast
from urllib.parse import urlsplit

import pyarrow as pa
from obstore.exceptions import NotFoundError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url
from pyarrow import fs

ATTEMPTS = 6  # of pyarrow at a request, which waits twice as long each time; three, its default, are over in a second
REGION = "us-east-1"  # where none is named beside an endpoint: servers other than Amazon's take any
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SAID = {
    "denied": ("403 Forbidden", "401 Unauthorized", "ACCESS_DENIED"),
    "full": ("os error 28", "os error 122", "os error 27", "No space left on device"),
}


def is_remote(place: str) -> bool:
    """Whether a path or URI lies on no local disk."""
    return "://" in place and not place.startswith("file://")


def objects(root: str) -> Any:
    """A bucket, or a folder in it, for obstore."""
    return from_url(root)


def filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """
    A URI for pyarrow: the file system, and the path in it.

    Raises:
        pyarrow.ArrowInvalid: no scheme that is known.
    """
    parts = urlsplit(uri)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if parts.scheme != "s3" or parts.query or "@" in parts.netloc or not endpoint:
        return cast("tuple[fs.FileSystem, str]", fs.FileSystem.from_uri(uri))
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or REGION
    # Credentials are left to the library, so that none travels with the object to another machine.
    system = fs.S3FileSystem(
        endpoint_override=endpoint, region=region, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
    )
    return system, (parts.netloc + parts.path).rstrip("/")


def remedy(error: BaseException) -> str | None:
    """What a person can do about an error of reading or writing; None where the content itself is to blame."""
    said, number = str(error), getattr(error, "errno", None)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError) or _says(said, "denied"):
        return "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the rights on the bucket, or those on the folder"
    if number in FULL or _says(said, "full"):
        return "the disk is full: make room, and the same command goes on from here"
    if isinstance(error, NotFoundError | FileNotFoundError):
        return "check the name of the bucket" if "NoSuchBucket" in said else None
    if ("after" in said and "retries" in said) or "error sending request" in said or "NETWORK_CONNECTION" in said:
        return "the store does not answer: check AWS_ENDPOINT_URL; the same command goes on from here"
    return None


def _says(said: str, what: str) -> bool:
    return any(word in said for word in SAID[what])


def storage(root: str) -> dict[str, Any]:
    """How Ray Train is told where checkpoints go: a path, and for a bucket the file system."""
    if not is_remote(root):
        return {"storage_path": root}
    try:
        system, path = filesystem(root)
    except pa.ArrowInvalid:
        return {"storage_path": root}
    return {"storage_path": path, "storage_filesystem": system}
