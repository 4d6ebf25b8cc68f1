//! The conformance suite of the run store: every case on SQLite and on Postgres.

mod backfill;
pub(crate) mod bed;
mod behind;
mod claiming;
mod ending;
mod fencing;
mod finishing;
mod history;
mod limit;
mod make;
mod merging;
mod options;
mod overlapping;
mod postgres;
mod pruning;
mod queues;
mod races;
mod reading;
mod sqlite;
mod submitting;
mod sums;
mod telling;
mod together;
mod tokens;
mod trips;
mod turns;
mod unreadable;
mod waiting;

/// Makes each case a test on both databases.
macro_rules! conformance {
    ($($module:ident { $($case:ident,)* })*) => {
        mod on_sqlite { $($(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::bed::on_sqlite(async |bed| super::$module::$case(bed).await).await;
            }
        )*)* }
        mod on_postgres { $($(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::bed::on_postgres(async |bed| super::$module::$case(bed).await).await;
            }
        )*)* }
    };
}

conformance! {
    submitting {
        a_submitted_run_is_what_was_asked,
        a_key_is_known_with_the_definition_of_its_acceptance,
        a_taken_key_changes_nothing,
        a_storm_under_one_key_makes_one_run,
        a_queued_run_is_cancelled_at_once,
        a_running_run_is_asked_to_stop,
        what_is_decided_or_ended_is_not_cancelled,
        a_run_is_accepted_alike_by_one_statement_and_by_many,
        a_retry_is_a_new_attempt_of_the_same_run_at_the_end_of_the_order,
        a_retry_is_for_the_attempt_that_was_seen,
        of_many_retries_at_once_one_is_accepted,
        a_retry_needs_a_definition_of_its_pipeline,
        the_schema_refuses_what_cannot_be,
    }
    together {
        runs_that_are_asked_for_together_are_each_as_alone,
        keys_that_are_asked_for_together_belong_to_their_principals,
        submissions_together_are_each_accepted_or_not,
        of_submissions_together_that_fail_none_is_there,
        two_storms_of_the_same_keys_make_one_run_each,
    }
    claiming {
        a_claimed_run_is_held,
        overlapping_runs_go_in_the_order_of_their_numbers,
        disjoint_runs_go_side_by_side,
        runs_of_two_definitions_are_not_held_at_once,
        pipelines_do_not_block_each_other,
        full_overlaps_everything_of_its_pipeline,
        a_retried_older_run_waits_for_a_running_younger_one,
        a_held_run_blocks_older_ones_too,
        a_run_that_is_not_due_blocks_the_younger_ones_that_overlap_it,
        an_expired_committing_run_is_claimed_first_with_what_was_decided,
        a_postponed_run_is_claimed_when_it_is_due,
        publishing_that_was_released_is_no_failure_and_goes_on_at_once,
        failures_to_publish_are_counted_from_the_decision_on,
        a_long_queue_for_one_partition_delays_no_claim,
        a_run_that_cannot_be_read_does_not_stop_the_others,
        a_lost_worker_is_replaced_until_its_run_has_lost_too_many,
        a_run_that_was_asked_to_stop_is_cancelled_when_its_worker_is_lost,
        an_expired_run_holds_its_partitions_until_it_is_taken_over,
        claimers_at_once_never_hold_overlapping_runs,
        numbers_become_visible_in_order,
        a_failed_run_is_not_claimed,
    }
    unreadable {
        a_run_whose_documents_cannot_be_read_says_what_can,
        a_document_that_cannot_be_read_is_told_with_its_place,
        what_a_run_has_kept_apart_stays_with_it_while_its_record_cannot_be_read,
    }
    turns {
        principals_take_turns,
        a_priority_counts_among_ones_own_runs,
        a_turn_overtakes_no_run_that_overlaps,
    }
    waiting {
        before_its_time_a_run_is_in_nobodys_way,
        what_is_due_goes_before_what_comes_after_its_time,
        a_retry_after_the_time_goes_behind_what_is_due,
        a_time_that_has_passed_is_now,
        a_retry_waits_for_the_time_too,
        of_due_runs_the_highest_priority_is_claimed_first,
        a_priority_overtakes_no_run_that_overlaps,
        a_long_queue_of_priorities_and_times_delays_no_claim,
        a_due_run_takes_one_number_however_many_look,
    }
    queues {
        queues_are_claimed_as_the_model_says,
    }
    behind {
        every_run_stands_behind_the_last_one_in_its_way,
        nobody_is_stranded_however_many_come_and_go,
        runs_that_come_together_stand_behind_each_other,
        a_run_whose_time_comes_stands_behind_who_was_there,
        who_stands_behind_a_run_that_has_ended_is_freed,
        what_an_older_version_does_lets_others_go_too,
    }
    overlapping {
        a_run_that_is_not_to_wait_is_refused_for_those_in_the_way,
        a_taken_key_comes_before_what_is_in_the_way,
        of_many_that_are_not_to_wait_at_once_one_is_accepted,
        one_that_waits_never_slips_in_before_one_that_does_not,
        a_retry_that_is_not_to_wait_is_refused_too,
    }
    backfill {
        what_is_picked_is_settled_at_acceptance,
        a_retry_keeps_what_was_picked,
        a_run_with_nothing_to_do_has_succeeded,
    }
    fencing {
        a_token_that_was_never_given_does_nothing,
        a_worker_whose_run_was_taken_over_does_nothing,
        a_worker_whose_run_was_queued_again_does_nothing,
        a_worker_that_handed_its_run_back_does_nothing,
        a_lease_that_ran_out_unnoticed_is_renewed,
        a_decision_is_made_once,
        a_decision_is_for_the_scope_and_nothing_else,
        a_cancellation_before_the_decision_wins,
        a_repeated_finish_is_done_and_changes_nothing,
        repeats_of_an_ending_are_done,
    }
    ending {
        a_failure_to_be_retried_waits_with_its_error,
        failures_are_counted_by_class,
        a_failure_without_a_retry_ends_the_run,
        a_dead_engine_counts_as_a_lost_worker,
        a_dead_engine_comes_back_when_its_worker_says,
        a_released_run_comes_back_at_once_uncounted,
        however_an_attempt_ends_a_cancellation_holds,
        an_ending_with_a_result_is_refused,
    }
    finishing {
        a_finished_run_has_its_report,
        contents_are_replaced_and_cleared_with_a_version_each,
        unchanged_leaves_who_wrote_it_and_says_who_confirmed_it,
        unchanged_under_a_new_definition_is_a_change,
        unchanged_files_have_the_totals_that_were_decided,
        a_table_tells_the_definitions_of_its_entries,
        a_full_run_writes_and_clears_what_it_decided,
        lost_staging_keeps_what_is_live_and_queues_the_rest,
        lost_staging_of_a_full_run_forgets_its_scope,
        disjoint_runs_finish_at_once,
    }
    history {
        a_table_as_of_a_version_is_what_its_listing_said,
        a_moment_is_a_version,
        a_partitions_history_is_paged_and_says_who,
        a_run_says_what_has_superseded_it,
    }
    sums {
        a_kept_sum_is_what_the_partitions_sum_up_to,
        a_kept_sum_is_believed_and_one_that_is_wrong_is_found_and_mended,
        a_table_without_a_kept_sum_gets_one,
    }
    pruning {
        what_is_pruned_is_told_no_more_and_all_else_as_before,
        a_run_goes_with_all_of_it_and_its_key_is_free,
        what_has_not_ended_stays,
        a_run_that_is_queued_again_meanwhile_stays,
        pruners_at_once_share_the_work,
        a_run_whose_webhook_is_not_told_yet_stays,
    }
    options {
        what_is_not_as_expected_is_not_accepted,
        what_has_changed_since_is_not_decided,
        runs_are_listed_by_label_and_key,
    }
    telling {
        every_end_of_a_run_is_told_once,
        the_end_of_a_run_that_nobody_works_on_is_told,
        what_is_told_is_the_run_as_it_was,
        one_server_has_a_message_in_hand,
        what_failed_is_due_again_until_it_is_given_up,
        lineage_is_told_in_order,
        what_fails_a_run_is_told_as_lineage,
        nobody_is_told_of_what_nobody_asked_to_be_told_of,
        a_message_that_cannot_be_read_is_tried_as_others_are,
        a_long_backlog_delays_no_other_message,
        a_message_that_does_not_say_whose_it_is_is_its_runs_principals,
        lineage_is_put_off_with_what_it_waits_for,
        webhooks_of_busy_principals_are_passed_over,
    }
    tokens {
        a_token_is_kept_as_it_was_made,
        a_revoked_token_stays_and_stays_revoked,
        what_ended_long_ago_is_forgotten_when_another_is_made,
        the_schema_refuses_an_admin_of_some_pipelines,
        runs_are_listed_by_principal_and_of_some_pipelines,
    }
    merging {
        a_merge_is_decided_over_its_bases_and_no_others,
        what_replaces_is_decided_whatever_was_there,
        lost_staging_leaves_new_bases,
    }
    reading {
        the_database_has_an_identity_and_one_warehouse,
        totals_are_over_the_range_and_not_over_the_page,
        keys_are_ordered_byte_by_byte,
        a_partition_is_told_with_its_history,
        the_last_attempts_are_told,
        glances_tell_what_changes_of_runs,
        entries_are_those_asked_for,
        listings_are_newest_first_and_filtered,
        a_summary_sums_up_its_run,
        staging_is_kept_for_who_may_need_it,
        rows_kept_apart_stay_while_a_record_names_them,
        the_queue_is_counted,
        changes_are_told_to_every_server,
        a_holder_hears_of_what_others_do,
    }
}
