"""Where the entry store of a sink URI is."""

from __future__ import annotations

from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.open import open_storage
from tidemill.config.canal import CanalOptions
from tidemill.config.uri import SinkUri
from tidemill.errors import ConfigError


def options_of(uri: SinkUri) -> CanalOptions:
    """The options of a canal:// URI."""
    if uri.canal is None:
        raise ConfigError(f"{uri} is not a canal:// address")
    return uri.canal


def storage_of(uri: SinkUri) -> Storage:
    """Open the store's storage. Raises ConfigError where the URI does not say where it is."""
    place = options_of(uri).store
    if not place:
        raise ConfigError(f"sink URI {uri}: no entry store", hint="Add store=FOLDER, or write canal:///FOLDER.")
    return open_storage(place)
