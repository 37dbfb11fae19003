"""Long cases of tests whose other cases are in every run: they are in the slow tier (``make test-slow``).

Each line is a pattern (as of ``fnmatch``, with [[] for a bracket) of the names that pytest prints.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

PATTERNS = (
    # exact on every graph: mixtures take the most sweeps
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]mixture-grid*",
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]mixture-Barabasi*",
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]mixture-random*",
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]mixture-barbell*",
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]mixture-broom*",
    "tests/laws/test_graphs.py::test_bregman_admm_finds_the_pooled_posterior_too[[]mixture-3-regular*",
    "tests/laws/test_graphs.py::test_bregman_admm_finds_the_pooled_posterior_too[[]pca-3-regular*",
    "tests/laws/test_graphs.py::test_bregman_admm_finds_the_pooled_posterior_too[[]linear-lollipop*",
    "tests/laws/test_graphs.py::test_bregman_admm_finds_the_pooled_posterior_too[[]linear-random*",
    "tests/laws/test_graphs.py::test_bregman_admm_finds_the_pooled_posterior_too[[]linear-Barabasi*",
    "tests/laws/test_graphs.py::test_the_way_a_sum_travels_does_not_change_a_bit[[]3-regular*",
    "tests/laws/test_graphs.py::test_lost_messages_cost_rounds_and_not_a_bit[[]0-*",
    "tests/laws/test_graphs.py::test_nodes_that_lack_whole_features_have_the_pooled_posterior[[]mixture]",
    # EM and its distributed form are slow at the end
    "tests/laws/test_models.py::test_every_node_has_the_pooled_posterior[[]PpcaModel-random*",
    "tests/models/pca/test_ppca.py::test_every_node_reaches_the_centralized_fixed_point[[]*complete*",
    "tests/models/pca/test_ppca.py::test_every_node_reaches_the_centralized_fixed_point[[]*ring*",
    "tests/test_cli.py::test_every_kind_is_fitted[[]ppca]",
    "tests/engines/test_kinds.py::test_without_faults_it_is_the_local_engines_answer[[]ppca]",
    "tests/laws/test_sample_weights.py::test_whole_weights_are_repeated_rows[[]ppca-*",
    "tests/laws/test_shard_lists.py::test_a_list_of_shards_gives_a_list_of_answers[[]ppca]",
    # the ring and the random graph are in every run
    "tests/laws/test_models.py::test_every_node_has_the_pooled_posterior[[]*-grid 2x3]",
    "tests/laws/test_models.py::test_the_pooled_bound_never_falls[[]*-False]",
    "tests/models/pca/test_exactness.py::test_every_node_has_the_pooled_posterior[[]small world*",
    "tests/models/pca/test_exactness.py::test_every_node_has_the_pooled_posterior[[]ring of 12-*",
    "tests/models/pca/test_exactness.py::test_every_node_has_the_pooled_posterior[[]star of 13-*",
    "tests/models/pca/test_exactness.py::test_every_node_has_the_pooled_posterior[[]complete*",
    "tests/models/pca/test_exactness.py::test_every_node_has_the_pooled_posterior[[]grid*",
    "tests/models/mixed/test_mixed_model.py::test_sites_have_the_pooled_posterior[[]*-lollipop]",
    "tests/consensus/test_laws.py::test_the_papers_form_finds_the_sum_on_small_networks[[]ring of 5]",
    "tests/consensus/test_laws.py::test_the_papers_form_finds_the_sum_on_small_networks[[]complete*",
    "tests/inference/test_acceleration.py::test_nodes_of_a_long_chain_decide_alike[[]2]",
    "tests/laws/test_graphs.py::test_lost_messages_cost_rounds_and_not_a_bit[[]1-0.3-*chain of 10*",
    "tests/laws/test_graphs.py::test_lost_messages_cost_rounds_and_not_a_bit[[]1-0.3-*star of 12*",
    # references that take long themselves
    "tests/laws/test_models.py::test_equals_its_reference[[]LatentDirichletAllocation]",
    "tests/laws/test_models.py::test_equals_its_reference[[]DiagonalGaussianMixture]",
    "tests/laws/test_models.py::test_equals_its_reference[[]MixtureOfPcaModel]",
    # the law of engines compares every model on ranks, to the bit
    "tests/engines/test_mpi.py::test_estimators_give_the_local_answer_on_ranks",
    "tests/engines/test_mpi.py::test_ranks_give_the_local_answer[[]all-reduce]",
    "tests/engines/test_mpi.py::test_a_rank_killed_while_others_are_done",
    "tests/engines/test_mpi.py::test_files_of_ranks_are_matched_by_their_columns",
    "tests/models/sfm/test_sfm_on_ranks.py::test_cameras_on_ranks_give_the_local_answer",
    "tests/models/regression/test_tables.py::test_levels_travel_between_processes",
    "tests/engines/test_mpi_ratings.py::test_the_shell_fits_ranks_and_resumes_after_a_kill",
    # statistical: over many data sets, or many fits
    "tests/laws/test_models.py::test_recovers_the_truth_and_covers_it[[]*",
    "tests/laws/test_sample_weights.py::test_whole_weights_are_repeated_rows[[]*-ring-missing]",
    "tests/estimators/test_conjugate_estimators.py::test_mixture_of_pca_is_exact_and_finds_the_subspaces*",
    "tests/experiments/test_runner.py::test_parallel_cases_say_the_same",
    # four deviations apart are in every run
    "tests/inference/test_acceleration.py::test_rounds_of_a_class_sorted_mixture[[]*-3.0]",
    # cut points: other families lack levels too
    "tests/models/regression/test_tables.py::test_sites_that_lack_levels_have_the_pooled_posterior[[]lollipop-*",
    "tests/models/regression/test_tables.py::test_sites_that_lack_levels_have_the_pooled_posterior[[]*-ordinal]",
    "tests/experiments/test_targets.py::test_hopkins[[]5]",
    "tests/models/mixed/test_moments.py::test_nodes_have_the_pooled_moments[[]slopes1-*",
    "tests/estimators/test_export_rows.py::test_rows_of_a_mixture[[]full]",
    "tests/estimators/test_export_rows.py::test_rows_of_pca[[]shared]",
    "tests/test_lifetime.py::test_children_end_with_their_parent[[]workers of reproduce-*",
    # binary tree, broom and random graphs of the same laws are in every run; all models on a small lollipop too
    "tests/laws/test_graphs.py::test_bregman_admm_finds_the_pooled_posterior_too[[]mixture-binary*",
    "tests/laws/test_graphs.py::test_bregman_admm_finds_the_pooled_posterior_too[[]linear-broom*",
    "tests/laws/test_graphs.py::test_the_way_a_sum_travels_does_not_change_a_bit[[]lollipop*",
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]mixture-lollipop*",
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]pca-lollipop*",
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]mixture-3-regular*",
    "tests/laws/test_graphs.py::test_lost_messages_cost_rounds_and_not_a_bit[[]*3-regular*",
    # the logistic model is on all graphs in every run
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]pca-grid*",
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]pca-Barabasi*",
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]pca-random*",
    "tests/laws/test_graphs.py::test_every_node_has_the_pooled_posterior_to_the_bit[[]pca-barbell*",
    # all models on a ring and on the lollipop are in every run
    "tests/laws/test_models.py::test_every_node_has_the_pooled_posterior[[]*-random*",
    # one process of each sort is killed, frozen, cut off or interrupted in every run
    "tests/engines/test_mpi.py::test_the_shell_checkpoints_and_resumes",
    "tests/engines/test_mpi.py::test_ranks_give_the_local_answer[[]bregman-admm]",
    "tests/engines/test_mpi_ratings.py::test_ranks_with_other_items_and_users_give_the_local_answer",
    "tests/models/ratings/test_rating_cli.py::test_control_c_leaves_a_checkpoint_and_resume_goes_on",
    "tests/engines/test_processes.py::test_a_node_away_at_the_very_end_holds_nobody_up*",
    "tests/engines/test_processes.py::test_a_node_frozen_inside_a_fit*",
    "tests/engines/test_namespaces.py::test_machines_with_addresses_of_their_own",
    "tests/engines/test_net.py::test_nodes_with_certificates_give_the_local_answer[[]bayesian-gaussian-mixture]",
    "tests/engines/test_kinds.py::test_without_faults_it_is_the_local_engines_answer[[]mixed-model]",
    "tests/test_warmup.py::test_a_command_says_what_it_compiles_and_only_once",
    # cut points take the longest of the families
    "tests/models/glm/test_generalized_linear_model.py::test_units_and_origins_of_columns_do_not_matter[[]*-ordinal]",
    "tests/models/glm/test_generalized_linear_model.py::test_nodes_with_one_class_or_one_row_have_the_pooled_posterior[[]star*-ordinal]",
    "tests/models/mixed/test_mixed_model.py::test_targets_without_noise_are_refused[[]*-nodes]",
    "tests/models/mixed/test_mixed_model.py::test_units_do_not_matter",
    "tests/models/mixed/test_moments.py::test_nodes_have_the_pooled_moments[[]slopes0-poisson]",
    "tests/models/mixed/test_moments.py::test_nodes_have_the_pooled_moments[[]slopes0-bernoulli]",
    "tests/cli/test_labels.py::test_groups_are_words_or_large_numbers[[]words-*",
    "tests/cli/test_labels.py::test_groups_are_words_or_large_numbers[[]large-False]",
    "tests/models/pca/test_pca_model.py::test_hard_cases_of_the_diagonal_model_converge[[]24-14-4-*",
    "tests/models/pca/test_exactness.py::test_with_any_prior[[]0.3-components located]",
    "tests/experiments/test_runner.py::test_every_penalty_converges_to_the_pooled_posterior[[]50.0]",
    "tests/experiments/test_netflix.py::test_every_system_is_scored_and_nodes_change_nothing",
    # the mistake that takes the most schedules to be found; the others are planted in every run
    "tests/engines/test_protocol.py::test_planted_mistakes_are_found[[]sums mix epochs]",
    # a posterior far out, in small steps; counts of the Poisson family are in every run
    "tests/models/glm/test_generalized_linear_model.py::test_counts_that_are_all_zero[[]negative-binomial]",
    # the fit without extrapolation that it is compared with takes a thousand sweeps
    "tests/models/pca/test_pca_model.py::test_extrapolated_sweeps_have_the_same_fixed_point[[]0]",
    # cut points and random slopes are slow; other families and variants are in every run
    "tests/models/glm/test_generalized_linear_model.py::test_nodes_with_one_class_or_one_row_have_the_pooled_posterior[[]ring*-ordinal]",
    "tests/models/glm/test_generalized_linear_model.py::test_a_weight_of_two_is_two_rows[[]ordinal]",
    "tests/laws/test_models.py::test_the_bound_is_largest_at_the_posterior[[]GeneralizedLinear/ordinal]",
    "tests/models/glm/test_speed_paths.py::test_a_start_from_some_rows_ends_at_the_same_posterior[[]negative-binomial]",
    # compressed messages with and without loss, and frozen nodes: one of each in every run
    "tests/engines/test_faults.py::test_compressed_messages_end_exact[[]0.0]",
    "tests/laws/test_models.py::test_with_every_rule_and_lossy_links[[]bregman-admm-HiddenMarkov/gaussian]",
    # rounds on the graphs of five nodes and on the grid are in every run
    "tests/models/pca/test_exactness.py::test_rounds_stay_within_the_targets[[]small world*",
    "tests/models/pca/test_exactness.py::test_rounds_stay_within_the_targets[[]lollipop*",
    "tests/models/pca/test_exactness.py::test_rounds_stay_within_the_targets[[]ring of 12*",
    "tests/models/pca/test_exactness.py::test_rounds_stay_within_the_targets[[]star of 12*",
    "tests/models/pca/test_exactness.py::test_rounds_stay_within_the_targets[[]chain of 10*",
    "tests/models/pca/test_exactness.py::test_every_node_has_the_pooled_posterior[[]chain of 20-0.3-diag]",
    "tests/models/pca/test_exactness.py::test_every_node_has_the_pooled_posterior[[]random geometric*-0.3-diag]",
    # shorter delays and other losses are in every run
    "tests/consensus/test_laws.py::test_lost_and_late_messages_cost_rounds_never_correctness[[]Links(loss=0.0, delay=10,*",
    # every kind of missing label is pooled in every run, one of them at nodes too
    "tests/models/mixed/test_mixed_model.py::test_missing_labels_are_refused_or_dropped[[]nodes-NaT]",
    "tests/models/mixed/test_mixed_model.py::test_missing_labels_are_refused_or_dropped[[]nodes-<NA>]",
    "tests/models/mixed/test_mixed_model.py::test_missing_labels_are_refused_or_dropped[[]nodes-None]",
)


def is_slow(name: str) -> bool:
    """Whether a test's name matches a pattern."""
    return any(fnmatchcase(name, pattern) for pattern in PATTERNS)
