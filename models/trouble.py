"""Errors by whose they are to mend."""


class MendableError(Exception):
    """An error in what was asked for or given: its message says what would be right, and a traceback adds nothing."""


class FolderError(MendableError, ValueError):
    """A folder that is no model, or not a whole one."""
