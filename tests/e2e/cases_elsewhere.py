"""The commands that are tried elsewhere, each with the test for it, and those that have no JSON."""

from tests.e2e.cases import BAD, JSON, SUCCESS

# What needs more than one line: a process of its own, or two devices at once.
_DEMO = "tests/e2e/test_demo.py"
_DEV = "tests/e2e/test_dev.py"
_SERVERS = "tests/e2e/test_cli_servers.py::test_devices_take_part_and_the_model_goes_on_and_back"
_RECOVERY = "tests/e2e/test_recovery.py::test_an_optimiser_whose_state_does_not_fit_starts_over_and_it_is_recorded"
_SUCCESSORS = "tests/e2e/test_successors.py::test_operators_add_items_and_devices_follow_also_after_a_restart"
_BENCH = "tests/e2e/test_command.py::test_the_benchmark_writes_every_figure_it_prints"
_LOADTEST = "tests/e2e/test_loadtest.py::test_devices_move_what_the_plan_says_of_their_transport"
_MEMORY = "tests/e2e/test_loadtest.py::test_the_memory_of_real_servers_is_compared_with_the_plan"
_PACING = "tests/e2e/test_loadtest.py::test_simulated_fleets_reach_their_goals_and_are_drawn"
_ATTACK = "tests/e2e/test_attack.py::test_attacks_on_real_servers_change_nothing_and_are_seen"
_SCALE = "tests/integration/test_scale.py::test_a_short_report_finds_the_same_bytes_and_reaches_its_goals"
_SEQUENCES = "tests/integration/test_sequences_report.py::test_a_short_report_measures_every_case_and_writes_its_files"
_QUALITY = "tests/integration/test_quality.py::test_a_short_run_measures_every_part_and_writes_its_files"
_WIRE = "tests/e2e/test_wire.py::test_a_relayed_device_keeps_its_limit_and_each_request_has_a_short_head"
_ROUND_END = (
    "tests/e2e/test_control.py::test_a_round_is_closed_early_with_an_exact_sum_and_another_is_aborted_by_server_1"
)
ELSEWHERE: dict[tuple[str, str], str] = {
    **{("bench", kind): _BENCH for kind in (SUCCESS, JSON)},
    ("check", BAD): "tests/e2e/test_operate.py::test_check_names_what_is_wrong_and_the_fix",
    (
        "demo",
        SUCCESS,
    ): f"{_DEMO}::test_the_demo_shows_every_round_stays_up_and_leaves_nothing_but_its_report",
    ("demo", JSON): f"{_DEMO}::test_over_http_and_in_process_the_same_seed_gives_the_same_table",
    ("dev", SUCCESS): f"{_DEV}::test_the_printed_program_and_the_printed_commands_work_as_they_are",
    ("dev", JSON): f"{_DEV}::test_one_device_takes_part_in_round_after_round_with_what_is_printed_as_json",
    **{(f"device {name}", kind): _SERVERS for name in ("loop", "once") for kind in (SUCCESS, JSON)},
    **{("loadtest", kind): _LOADTEST for kind in (SUCCESS, JSON)},
    **{("memory", kind): _MEMORY for kind in (SUCCESS, JSON)},
    **{("model reset-optimiser", kind): _RECOVERY for kind in (SUCCESS, JSON)},
    **{("model rollback", kind): _SERVERS for kind in (SUCCESS, JSON)},
    **{("attack", kind): _ATTACK for kind in (SUCCESS, JSON)},
    **{("scale", kind): _SCALE for kind in (SUCCESS, JSON)},
    **{("pacing", kind): _PACING for kind in (SUCCESS, JSON)},
    **{(f"round {name}", kind): _ROUND_END for name in ("abort", "close") for kind in (SUCCESS, JSON)},
    **{("quality", kind): _QUALITY for kind in (SUCCESS, JSON)},
    **{("sequences", kind): _SEQUENCES for kind in (SUCCESS, JSON)},
    ("run list", BAD): "tests/e2e/test_cli_offline.py::test_a_damaged_run_is_named_and_the_others_are_listed",
    **{("wire", kind): _WIRE for kind in (SUCCESS, JSON)},
    **{(f"task {name}", kind): _SUCCESSORS for name in ("agree", "succeed") for kind in (SUCCESS, JSON)},
    ("task agree", BAD): _SUCCESSORS,
    ("serve", SUCCESS): "tests/e2e/test_processes.py::test_rounds_of_two_processes_end_published_with_exact_sums",
}
# They print nothing, or JSON always.
WITHOUT_JSON = {"serve", "pair export"}
