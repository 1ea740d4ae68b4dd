"""TiCDC's 181 integration tests by their names (master of August 2026): which test here stands for each, which stands for a part of it, or
why none does.

Every counterpart runs on the playground or on recordings of a real TiKV, none on a TiDB cluster. `fail_over_ddl_A` to `_O` stop TiCDC's
maintainer or dispatchers at five named points of its DDL barrier, for three kinds of DDL. Here one process runs a DDL: it dies, and
freezes, at each of the five points."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.delivery.scenarios import SCENARIOS

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
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[complex_transaction]", "complex_transaction"),
    (
        "sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[ddl]",
        "common_1 ddl_sequence multi_tables_ddl drop_many_tables",
    ),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[partition_table]", "partition_table consistent_partition_table"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[wide_table]", "wide_table"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[autorandom]", "autorandom"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[large_txn]", "large_txn large_txn_split"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[default_value]", "default_value"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[types]", "cdc"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[row_format]", "row_format"),
    ("sinks/mysql/test_server.py::test_foreign_keys_are_neither_checked_nor_followed", "foreign_key foreign_key_check"),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[tables_of_many_schemas]", "batch_add_table multi_source simple"),
    ("sinks/mysql/test_parameters.py::test_a_vector_is_its_text", "vector"),
    ("rules/test_event_filter.py::test_ddls_by_their_kind", "event_filter"),
    ("sinks/mysql/test_parameters.py::test_parameters_change_the_statements", "batch_update_to_no_batch safe_mode"),
    ("sinks/mysql/test_dialect.py::test_what_others_cannot_take_is_rewritten", "tiflash ddl_attributes partial_index"),
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
        "fail_over changefeed_reconstruct restart_changefeed ddl_with_random_move_table",
    ),
    (
        "sinks/mysql/test_ddl_stops.py::test_a_process_dies_there",
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
    ("capture/test_lossy_ddls.py::test_rows_that_ddls_rewrite_are_not_captured", "lossy_ddl"),
    (
        "server/test_manager_processes.py::test_what_lost_its_history_stays_failed_with_its_error_on_every_server",
        "bootstrap_retry_after_error",
    ),
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
    # a server
    ("server/api/test_cdc_cli.py::test_the_life_of_a_changefeed", "api_v2 http_api http_api_compatibility"),
    ("server/api/test_changefeeds.py::test_toml_is_a_file_for_create", "changefeed_query_toml_api"),
    ("server/test_manager.py::test_the_checkpoint_is_overwritten_only_between_two_runs", "changefeed_resume_with_checkpoint_ts"),
    ("server/test_manager.py::test_a_changefeed_is_updated_while_it_is_stopped", "changefeed_update_config"),
    ("server/test_manager.py::test_errors_pauses_and_the_way_back", "changefeed_finish"),
    ("cli/cdc/test_ticdc_verbs.py::test_a_server_with_tls", "cli_tls_with_auth"),
    ("cli/cdc/test_ticdc_verbs.py::test_users_and_passwords", "cli_with_auth"),
    ("server/api/test_listener.py::test_clients_need_a_certificate_whose_name_is_allowed", "http_api_tls http_api_tls_old_arch"),
    ("capture/tikv/test_proxies.py::test_pd_and_tikv_are_reached_past_a_proxy", "http_proxies"),
    ("integration/test_server.py::test_three_changefeeds_of_one_server", "multi_changefeeds"),
    (
        "cli/changefeeds/test_server_file.py::test_every_key_of_ticdc_is_taken_warned_of_or_refused_with_a_reason",
        "server_config_compatibility",
    ),
    ("server/test_manager.py::test_synced_by_the_changefeeds_own_intervals", "synced_status"),
    ("server/test_manager.py::test_synced_is_the_same_with_a_redo_log", "synced_status_with_redo"),
    ("server/test_manager.py::test_a_checkpoint_is_overwritten_past_sync_points", "overwrite_resume_with_syncpoint"),
    ("server/api/test_cdc_cli.py::test_no_keyspace_is_the_default_one_and_another_is_refused", "cli_missing_keyspace_error"),
    ("integration/test_servers.py::test_the_leader_dies_and_freezes", "owner_resign"),
    ("delivery/inputs/test_routed_names.py::test_a_log_of_ticdcs_cases_under_other_names", "table_route"),
    ("delivery/inputs/test_routed_names.py::test_two_tables_of_one_target_are_refused_with_both_names", "table_route_conflict_detection"),
    ("tidb/schema/test_passing_ddls.py::test_what_is_of_no_table_changes_none_and_is_not_sent", "resourcecontrol"),
    # messages
    ("kernels/avro/test_avro_golden.py::test_kernel_writes_ticdcs_bytes", "avro_basic"),
    (
        "integration/test_run_avro.py::test_a_refused_schema_fails_the_changefeed_which_goes_on_once_it_is_allowed",
        "avro_schema_registry_error",
    ),
    (
        "kernels/templates/test_canal_json_golden.py::test_rows_are_ticdcs",
        "canal_json_basic canal_json_content_compatible canal_json_handle_key_only",
    ),
    ("protocols/canal_json/test_decode.py::test_claim_checks", "canal_json_claim_check"),
    ("kernels/open/test_open_options.py::test_claim_checks", "open_protocol_claim_check"),
    ("kernels/open/test_open_options.py::test_kernel_writes_ticdcs_bytes", "open_protocol_handle_key_only kafka_compression"),
    ("kernels/open/test_open_golden.py::test_batches_are_ticdcs", "kafka_messages"),
    ("kernels/open/test_open_random.py::test_large_values_grow_the_buffers", "kafka_big_messages"),
    ("kernels/templates/test_simple_golden.py::test_rows_are_ticdcs", "kafka_simple_basic"),
    (
        "delivery/sinks/test_text_protocols.py::test_rows_of_simple_that_are_too_large",
        "kafka_simple_claim_check kafka_simple_handle_key_only",
    ),
    ("delivery/sinks/test_debezium.py::test_values_and_schemas_are_debeziums", "debezium_basic debezium01"),
    ("delivery/sinks/test_debezium.py::test_every_change_in_order", "debezium02"),
    ("delivery/sinks/test_debezium.py::test_without_old_values", "debezium03"),
    ("delivery/sinks/test_debezium_avro.py::test_every_change_is_debeziums", "debezium_avro"),
    ("rules/test_selectors.py::test_the_first_selector_that_matches_counts", "column_selector"),
    ("delivery/task/test_row_filter.py::test_rows_are_left_out", "ignore_update_only_columns"),
    ("rules/test_dispatch.py::test_every_row_goes_where_ticdc_sends_it", "mq_sink_dispatcher"),
    ("delivery/sinks/test_kafka.py::test_topics_of_tables_are_made_and_their_growth_is_noticed", "multi_topics"),
    ("delivery/sinks/test_kafka.py::test_a_broker_that_comes_back_has_it_all", "mq_sink_error_resume"),
    # files
    ("kernels/templates/test_csv_golden.py::test_rows_are_ticdcs", "csv_storage_basic storage_csv_update"),
    (
        "sinks/storage/test_storage.py::test_a_session_with_45_ddls_gives_ticdcs_files",
        "canal_json_storage_basic csv_storage_multi_tables_ddl",
    ),
    (
        "sinks/storage/test_tables.py::test_every_ddl_of_a_recorded_session_gives_ticdcs_files",
        "canal_json_storage_partition_table csv_storage_partition_table",
    ),
    (
        "sinks/storage/test_tables.py::test_tables_of_all_types",
        "csv_storage_update_pk_clustered csv_storage_update_pk_nonclustered",
    ),
    ("delivery/sinks/test_storage.py::test_columns_may_be_left_out", "csv_storage_column_selector"),
    ("delivery/sinks/test_avro_dispatch.py::test_columns_may_be_left_out", "kafka_column_selector_avro"),
    ("changefeed/test_redo.py::test_the_log_is_applied_to_routed_tables", "redo_apply_table_route"),
]
"""Place → names."""

IN_PART: list[tuple[str, str, str]] = [
    (
        "sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[ddl]",
        "multi_rocks",
        "tables that are filled and dropped; stores with a RocksDB for each region are not the playground's",
    ),
    (
        "capture/test_capture.py::test_lock_only_commits_end_no_subscription",
        "savepoint",
        "what a rollback to a savepoint leaves in TiKV: locks without rows. The playground has no SAVEPOINT",
    ),
    ("sinks/mysql/test_scenarios.py::test_tables_are_those_of_the_upstream[types]", "tidb_mysql_test", "one scenario, not MySQL's corpus"),
    (
        "canal/test_real_adapter.py::test_it_synchronizes_everything",
        "canal_json_adapter_compatibility",
        "the real adapter reads over TCP, not Kafka's messages into a database",
    ),
    (
        "server/api/test_cdc_cli.py::test_a_client_with_a_user_of_the_tokens",
        "http_api_tls_with_user_auth",
        "names and tokens of a file in place of TiDB's users",
    ),
]
"""Place → names → what is not covered."""

_ARCHITECTURE = "of TiCDC's own parts, which Tidemill has not: schedulers, dispatchers, two architectures, usage texts, memory control"

REFUSED: list[tuple[str, str, str]] = [
    ("capture/tikv/client/test_pd.py::test_a_keyspace_cluster_is_refused_by_name", "cmek_keyspace", "keyspaces are refused by name"),
    (
        "tidb/schema/test_recorded.py::test_the_feed_tells_what_tidb_lists",
        "sequence",
        "sequences are not replicated, as the page of limits says: their DDLs pass by",
    ),
    ("config/test_ticdc_keys.py::test_cleaning_up_is_left_to_the_store", "storage_cleanup", "the store's own rules remove files"),
    (
        "config/test_encoding.py::test_simple_is_not_written_in_avro",
        "kafka_simple_basic_avro kafka_simple_claim_check_avro kafka_simple_handle_key_only_avro",
        "simple is not written in Avro",
    ),
]
"""Place → names → what is not there, which is said to who asks for it."""

NOT_HERE: list[tuple[str, str]] = [
    (_ARCHITECTURE, "old_arch_compatibility maintainer_failover_when_operator move_table correctness_for_shared_column_schema"),
    (_ARCHITECTURE, "cdc_server_tips ds_memory_control dummy"),
]
"""Why → names."""


@pytest.mark.parametrize("place", sorted({place for place, *_ in [*HERE, *IN_PART, *REFUSED]}))
def test_what_stands_for_a_scenario_exists(place: str) -> None:
    path, _, name = place.partition("::")
    text = (TESTS / path).read_text(encoding="utf-8")
    test, _, case = name.partition("[")
    assert re.search(rf"^\s*(async )?def {test}\(", text, re.MULTILINE), place
    assert not case or case.rstrip("]") in SCENARIOS or f'"{case.rstrip("]")}"' in text, place


def test_each_scenario_is_named_once() -> None:
    lines = (TESTS / "golden/peers/ticdc_integration_tests.tsv").read_text(encoding="utf-8").splitlines()[1:]
    whole = [name for _, some in HERE for name in some.split()]
    part = [name for _, some, _ in [*IN_PART, *REFUSED] for name in some.split()]
    missing = [name for _, some in NOT_HERE for name in some.split()]
    assert sorted([*whole, *part, *missing]) == sorted(line.split("\t")[0] for line in lines)
