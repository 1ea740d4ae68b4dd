"""TiCDC's integration tests with a MySQL downstream, by their names (master, 2026): which test here stands for
each, or why none does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]

HERE: list[tuple[str, str]] = [
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[charset_gbk]", "charset_gbk consistent_replicate_gbk"),
    (
        "sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[new_ci_collation]",
        "new_ci_collation ci_collation_compatibility",
    ),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[many_pk_or_uk]", "many_pk_or_uk unsplittable_tables"),
    (
        "sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[conflict_key_generated_column]",
        "conflict_key_generated_column generate_column",
    ),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[complex_transaction]", "complex_transaction savepoint"),
    (
        "sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[ddl]",
        "common_1 ddl_sequence multi_tables_ddl drop_many_tables",
    ),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[partition_table]", "partition_table consistent_partition_table"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[wide_table]", "wide_table"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[autorandom]", "autorandom"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[large_txn]", "large_txn large_txn_split"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[default_value]", "default_value"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[types]", "cdc tidb_mysql_test"),
    ("sinks/mysql/test_server.py::test_foreign_keys_are_neither_checked_nor_followed", "foreign_key foreign_key_check"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[tables_of_many_schemas]", "batch_add_table multi_source simple"),
    ("sinks/mysql/test_parameters.py::test_a_vector_is_its_text", "vector"),
    ("rules/test_event_filter.py::test_ddls_by_their_kind", "event_filter"),
    ("sinks/mysql/test_parameters.py::test_parameters_change_the_statements", "batch_update_to_no_batch safe_mode"),
    ("sinks/mysql/test_dialect.py::test_what_others_cannot_take_is_rewritten", "ddl_attributes tiflash partial_index"),
    ("sinks/mysql/test_ddls.py::test_a_ddl_runs_in_a_session_as_upstream", "sql_mode"),
    ("sinks/mysql/test_server.py::test_a_default_of_now_is_the_time_of_the_ddl", "ddl_default_current_timestamp"),
    ("sinks/mysql/test_wanted_states.py::test_what_is_so_already_is_passed_over", "ddl_reentrant"),
    ("sinks/mysql/test_ddls.py::test_rows_go_on_while_an_index_is_built_and_the_next_ddl_waits", "ddl_wait"),
    (
        "sinks/mysql/test_ddls.py::test_a_ddl_is_killed_when_a_stop_is_asked_for_and_runs_at_the_next_start",
        "pause_changefeed_with_long_time_ddl",
    ),
    ("sinks/mysql/test_server.py::test_a_ddl_runs_once", "kill_owner_with_ddl in_flight_ddl_during_scheduling"),
    ("sinks/mysql/test_server.py::test_a_ddl_that_may_have_run_is_passed_over_if_the_catalogue_says_so", "checkpoint_race_ddl_crash"),
    ("sinks/mysql/test_server.py::test_a_row_that_is_in_the_way_is_replaced", "changefeed_dup_error_restart"),
    ("sinks/mysql/test_storms.py::test_whatever_fails_the_tables_are_the_upstreams", "mysql_sink_retry random_drop_message"),
    ("sinks/mysql/test_session.py::test_the_upstream_itself_is_refused_as_downstream", "same_upstream_downstream"),
    (
        "sinks/mysql/sync/test_points.py::test_at_a_sync_point_the_tables_are_those_of_the_upstream",
        "syncpoint in_flight_syncpoint_during_scheduling",
    ),
    (
        "sinks/mysql/sync/test_points.py::test_a_sync_point_and_the_end_of_its_batch_are_one_transaction",
        "syncpoint_check_ts fail_over_ddl_mix_with_syncpoint",
    ),
    ("capture/test_bdr.py::test_what_came_from_the_other_cluster_is_not_captured", "bdr_mode"),
    ("integration/test_run_mysql_global.py::test_a_reader_sees_whole_transactions_and_each_is_applied_once", "bank"),
    (
        "integration/test_run_mysql.py::test_tables_are_those_of_the_upstream_whatever_is_killed",
        "fail_over changefeed_reconstruct restart_changefeed ddl_with_random_move_table "
        "fail_over_ddl_A fail_over_ddl_B fail_over_ddl_C fail_over_ddl_D fail_over_ddl_E fail_over_ddl_F fail_over_ddl_G fail_over_ddl_H "
        "fail_over_ddl_I fail_over_ddl_J fail_over_ddl_K fail_over_ddl_L fail_over_ddl_M fail_over_ddl_N fail_over_ddl_O fail_over_ddl_mix",
    ),
    (
        "chaos/test_database_chaos.py::test_a_storm_over_a_database",
        "availability fail_over_ddl_mix_random_delay capture_session_done_during_task multi_capture",
    ),
    ("sinks/mysql/test_server.py::test_a_task_of_an_older_attempt_cannot_commit", "capture_local_fence_on_session_done"),
    (
        "sinks/mysql/test_session.py::test_an_attempt_that_is_given_up_leaves_no_statement_behind_in_the_server",
        "capture_suicide_while_balance_table",
    ),
    ("changefeed/test_redo.py::test_the_rest_of_the_log_is_applied", "consistent_replicate_basic consistent_replicate_ddl"),
    (
        "changefeed/test_redo.py::test_an_interval_that_was_begun_is_ended",
        "consistent_replicate_storage_file consistent_replicate_storage_file_large_value consistent_replicate_nfs",
    ),
    ("changefeed/test_redo.py::test_the_log_is_on_s3_and_the_changefeed_is_unknown_to_the_database", "consistent_replicate_storage_s3"),
    ("changefeed/test_redo.py::test_storage_as_ticdc_spells_it", "consistent_compatibility"),
    (
        "changefeed/test_restart_rule.py::test_a_sink_that_is_away_too_long_and_a_person_who_resumes",
        "changefeed_error changefeed_pause_resume",
    ),
    ("integration/test_run.py::test_another_cluster_is_refused", "multi_cdc_cluster"),
    ("delivery/test_replay.py::test_filters_and_tables_without_a_usable_key", "force_replicate_table"),
    ("capture/test_capture.py::test_the_gc_safe_point_is_held_before_the_first_row_and_follows_the_log", "gc_safepoint"),
    (
        "capture/tikv/regions/test_regions.py::test_c10_a_broken_stream_ends_all_its_subscriptions_and_no_other",
        "kv_client_stream_reconnect",
    ),
    ("capture/tikv/regions/test_regions.py::test_c1_split", "split_region"),
    ("capture/tikv/regions/test_regions.py::test_c3_merge_takes_the_smaller_resolved_ts", "region_merge"),
    ("capture/tikv/test_locks.py::test_l1_an_orphan_lock_does_not_hold_a_capture", "resolve_lock"),
    (
        "capture/tables/test_split_tables.py::test_a_table_is_split_while_it_is_written",
        "ddl_for_split_tables split_table_check merge_table",
    ),
    (
        "integration/test_run_split.py::test_a_hot_table_is_split_under_a_run",
        "ddl_for_split_tables_random_schedule ddl_for_split_tables_with_failover ddl_for_split_tables_with_merge_and_split "
        "ddl_for_split_tables_with_random_merge_and_split ddl_for_split_tables_with_random_move_table",
    ),
    ("test_redaction.py::test_no_part_of_a_secret_is_shown", "log_redaction"),
    ("cli/changefeeds/test_config.py::test_every_fault_is_told", "update_changefeed_check_config"),
]
"""Place → names."""

_OPERATING = "commands and API of a server that keeps many changefeeds: not built yet"
_ARCHITECTURE = "of TiCDC's own parts, which Tidemill has not: schedulers, dispatchers, two architectures"

NOT_HERE: list[tuple[str, str]] = [
    (
        _OPERATING,
        "api_v2 changefeed_query_toml_api changefeed_resume_with_checkpoint_ts changefeed_update_config changefeed_finish cdc_server_tips "
        "cli_tls_with_auth cli_with_auth http_api http_api_compatibility http_api_tls http_api_tls_old_arch http_api_tls_with_user_auth "
        "http_proxies multi_changefeeds overwrite_resume_with_syncpoint server_config_compatibility synced_status synced_status_with_redo "
        "bootstrap_retry_after_error",
    ),
    (_ARCHITECTURE, "old_arch_compatibility maintainer_failover_when_operator move_table correctness_for_shared_column_schema"),
    ("keyspaces are refused by name", "cli_missing_keyspace_error cmek_keyspace"),
    ("routing of tables to other names is refused by name", "table_route table_route_conflict_detection redo_apply_table_route"),
    ("sequences are not replicated, as the page of limits says", "sequence"),
    ("no row crosses them: they are the upstream's own", "resourcecontrol multi_rocks row_format"),
]
"""Why → names."""


@pytest.mark.parametrize("place", sorted({place for place, _ in HERE}))
def test_what_stands_for_a_scenario_exists(place: str) -> None:
    path, _, name = place.partition("::")
    text = (TESTS / path).read_text(encoding="utf-8")
    test, _, case = name.partition("[")
    assert re.search(rf"^\s*(async )?def {test}\(", text, re.MULTILINE), place
    assert not case or f'"{case.rstrip("]")}"' in text, place


def test_each_scenario_is_named_once() -> None:
    names = [name for _, some in HERE for name in some.split()] + [name for _, some in NOT_HERE for name in some.split()]
    assert sorted(names) == sorted(set(names))
    assert len(names) == 138
