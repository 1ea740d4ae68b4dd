"""DDLs of resource groups and placement policies pass by: no table changes, and none is sent (TiCDC's test resourcecontrol)."""

from __future__ import annotations

import pytest

from tests.support.schema.schemas import job
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.job import DdlJob
from tidemill.tidb.schema.tracking.catalog import Catalog, Edits
from tidemill.tidb.schema.tracking.effects import effects
from tidemill.tidb.schema.tracking.tracker import SENT_ACTIONS

DONE = 6
PASSING = {
    Action.CREATE_RESOURCE_GROUP: "CREATE RESOURCE GROUP g RU_PER_SEC = 100",
    Action.ALTER_RESOURCE_GROUP: "ALTER RESOURCE GROUP g BURSTABLE",
    Action.DROP_RESOURCE_GROUP: "DROP RESOURCE GROUP g",
    Action.CREATE_PLACEMENT_POLICY: "CREATE PLACEMENT POLICY p FOLLOWERS = 2",
    Action.ALTER_PLACEMENT_POLICY: "ALTER PLACEMENT POLICY p FOLLOWERS = 4",
    Action.DROP_PLACEMENT_POLICY: "DROP PLACEMENT POLICY p",
}


@pytest.mark.parametrize("action", PASSING)
def test_what_is_of_no_table_changes_none_and_is_not_sent(action: Action) -> None:
    done = DdlJob.from_json(job(7, action, DONE, query=PASSING[action]))
    assert effects(done, Catalog()) == Edits()
    assert action not in SENT_ACTIONS
