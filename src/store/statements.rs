//! The statements that the steps are made of. Both dialects fill in this one struct, with the same numbering of values.

/// One database's dialect. Lists are JSON arrays; times are the database's own.
#[derive(Debug)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct Statements {
    /// The lowest migration that a version must know.
    pub(super) oldest_schema: &'static str,
    /// Those about tokens.
    pub(super) tokens: super::tokens::TokenStatements,
    /// Writes a row that nobody reads. 1 id, 2 now.
    pub(super) put_pulse: &'static str,
    /// 1 id.
    pub(super) remove_pulse: &'static str,
    /// The database's own id and its warehouse's.
    pub(super) identity: &'static str,
    /// Unless one is bound. 1 id.
    pub(super) bind_warehouse: &'static str,
    /// Until the transaction ends, nobody claims runs of the pipeline. 1 pipeline.
    pub(super) share_pipeline: &'static str,
    /// Until the transaction ends, nobody else submits, retries or claims runs of the pipeline. 1 pipeline.
    pub(super) lock_pipeline: &'static str,
    /// The same, unless it would have to wait; `locked` says so. 1 pipeline.
    pub(super) try_lock_pipeline: &'static str,
    /// The next `sequence` number.
    pub(super) next_sequence: &'static str,
    /// Runs of a pipeline whose time has come and which have no number yet take theirs, in the order of their times. 1 pipeline,
    /// 2 now.
    pub(super) take_numbers: &'static str,
    /// So many numbers were taken so. 1 how many.
    pub(super) drawn_numbers: &'static str,
    /// Unless it is there. 1 hash, 2 pipeline, 3 text, 4 now.
    pub(super) put_definition: &'static str,
    /// 1 hash.
    pub(super) definition: &'static str,
    /// Unless its key is taken. 1 id, 2 principal, 3 key, 4 pipeline, 5 mode, 6 asked, 7 fingerprint, 8 definition, 9 sequence,
    /// 10 due, 11 now, 12 priority, 13 not before, 14 who is told or null.
    pub(super) insert_run: &'static str,
    /// So that a principal has a turn. 1 principal.
    pub(super) join_turns: &'static str,
    /// How many runs of a run's principal are queued, counted no further than it matters. 1 run, 2 limit.
    pub(super) queued_runs: &'static str,
    /// 1 run, 2 list of keys.
    pub(super) insert_scope: &'static str,
    /// 1 run, 2 object of names and texts.
    pub(super) insert_labels: &'static str,
    /// Runs that are queued and have their numbers wait for their partitions; in the order of these, so that each stands behind the one
    /// before it. 1 list of runs.
    pub(super) reserve_scope: &'static str,
    /// What was asked. 1 run.
    pub(super) asked: &'static str,
    /// Other runs that have not ended, have their numbers and overlap the run, in their order. 1 run, 2 limit.
    pub(super) overlapping_runs: &'static str,
    /// Runs that have not ended and overlap what might be asked, in their order. 1 pipeline, 2 list of keys or null for the
    /// whole table, 3 limit, 4 now: of those without a number, the ones whose time has come, for they take theirs first.
    pub(super) overlapping_scope: &'static str,
    /// `runs` with the digest of what was asked and the definition that it was accepted with, of these keys. 1 list of keys, each a list of
    /// principal and key, 2 how many attempts.
    pub(super) known_keys: &'static str,
    /// A run's control state, and nobody else moves it until the transaction ends. 1 run.
    pub(super) lock_run: &'static str,
    /// Writes the control state back. 1 run, then its columns in the order of the statement.
    pub(super) save_run: &'static str,
    /// Those of claims.
    pub(super) claims: ClaimStatements,
    /// Unless it is decided or has ended; its documents are not read. Its pipeline. 1 run, 2 now, 3 error.
    pub(super) fail_unreadable: &'static str,
    /// A committing run's next claim. 1 run, 2 its time.
    pub(super) put_off_unreadable: &'static str,
    /// 1 run, 2 number, 3 worker, 4 token, 5 now.
    pub(super) insert_attempt: &'static str,
    /// The one that goes on, if any; its number. 1 run, 2 now, 3 outcome, 4 error.
    pub(super) end_open_attempt: &'static str,
    /// How the token's attempt ended. 1 run, 2 token.
    pub(super) attempt_outcome: &'static str,
    /// How many attempts have failed since the decision, its own included. 1 run, 2 the decided token.
    pub(super) publish_failures: &'static str,
    /// How many partitions a run has, and how many of them are decided. 1 run.
    pub(super) scope_size: &'static str,
    /// For partitions of the scope and no other. 1 run, 2 list of decisions.
    pub(super) decide_scope: &'static str,
    /// For `full`, whose scope is known only now. 1 run, 2 list of decisions.
    pub(super) insert_decided: &'static str,
    /// 1 run.
    pub(super) undecide_scope: &'static str,
    /// 1 run.
    pub(super) delete_scope: &'static str,
    /// 1 run, 2 rows, 3 sources, 4 warnings, 5 whether there is a manifest.
    pub(super) save_report: &'static str,
    /// Whether a decided run writes a manifest. 1 run.
    pub(super) decided_manifest: &'static str,
    /// 1 run, 2 what was kept apart or null.
    pub(super) save_quarantine: &'static str,
    /// Raises the table's version, or writes the first. 1 pipeline, 2 by how much.
    pub(super) raise_version: &'static str,
    /// The partitions of `sums.changes`. 1 run, 2 pipeline, 3 list of keys or null for all, 4 definition, 5 version, 6 now.
    pub(super) add_history: &'static str,
    /// 1 run, 2 pipeline, 3 list of keys or null for all, 4 definition, 5 now.
    pub(super) put_entries: &'static str,
    /// The file is the same to the byte; what is told of it may not be, under a new definition. 1 run, 2 pipeline, 3 list
    /// of keys or null for all, 4 definition, 5 now.
    pub(super) confirm_entries: &'static str,
    /// 1 run, 2 pipeline, 3 list of keys or null for all.
    pub(super) delete_entries: &'static str,
    /// What changes of runs before they end. 1 list of runs.
    pub(super) glances: &'static str,
    /// Runs, each with its partitions, its last attempts, which later runs have changed its partitions since it succeeded, and the webhooks
    /// of its ends: each a list of objects in no order, or null. 1 list of runs, 2 how many attempts.
    pub(super) runs: &'static str,
    /// Whose a run is, where it is, and when it ended. 1 run.
    pub(super) ended_run: &'static str,
    /// 1 run.
    pub(super) run_partitions: &'static str,
    /// Summaries, newest first. 1 pipeline, 2 state, 3 after, 4 before, 5 smaller id (each may be null), 6 limit, 7 partition
    /// or null, 8 list of labels, each a list of name and text, 9 principal, 10 key (each may be null).
    pub(super) list: &'static str,
    /// The same, where the pipeline is given.
    pub(super) list_of_pipeline: &'static str,
    /// The same, where the state is given.
    pub(super) list_in_state: &'static str,
    /// The same, where the partition is given.
    pub(super) list_of_partition: &'static str,
    /// The same, where the key is given.
    pub(super) list_of_key: &'static str,
    /// The same, where the principal is given.
    pub(super) list_of_principal: &'static str,
    /// The same, where there is a label.
    pub(super) list_of_label: &'static str,
    /// The version, and the oldest one that can be told. 1 pipeline.
    pub(super) version: &'static str,
    /// What is summed up. 1 pipeline, 2 from, 3 until (each may be null).
    pub(super) contents: &'static str,
    /// 1 pipeline, 2 from, 3 until, 4 after (each may be null), 5 limit.
    pub(super) page: &'static str,
    /// `contents` as they were at a version. 1 pipeline, 2 from, 3 until (each may be null), 4 version.
    pub(super) contents_as_of: &'static str,
    /// `page` as it was at a version. 1 pipeline, 2 from, 3 until, 4 after (each may be null), 5 limit, 6 version.
    pub(super) page_as_of: &'static str,
    /// The last version that a run made; null where it made none. 1 pipeline, 2 run.
    pub(super) version_of_run: &'static str,
    /// The last version that was committed by then; null before the first. 1 pipeline, 2 time.
    pub(super) version_at: &'static str,
    /// In no order. 1 pipeline, 2 list of keys.
    pub(super) entries: &'static str,
    /// The whole table's, in no order. 1 pipeline.
    pub(super) table_entries: &'static str,
    /// The definition of each of these entries of the catalog. 1 pipeline, 2 list of keys.
    pub(super) made_by: &'static str,
    /// The definitions that the catalog's entries are right for. 1 pipeline.
    pub(super) table_definitions: &'static str,
    /// 1 list of hashes.
    pub(super) definitions: &'static str,
    /// Newest first. 1 pipeline, 2 partition, 3 before this version or null, 4 limit.
    pub(super) history: &'static str,
    /// The runs of what the sweeper has found. 1 list of runs.
    pub(super) leftover_runs: &'static str,
    /// 1 now.
    pub(super) queue_depth: &'static str,
    /// Of each pipeline that ever had a run: its due runs, and when one last succeeded. 1 now.
    pub(super) pipeline_depths: &'static str,
    /// What tables sum up to.
    pub(super) sums: SumStatements,
    /// What goes when it is old.
    pub(super) prune: PruneStatements,
    /// Those of messages.
    pub(super) outbox: OutboxStatements,
}

/// Who works on what, in one database's dialect.
#[derive(Debug)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct ClaimStatements {
    /// What there is for a claim: the lowest migration that a version must know, whether `lost_runs` and `unfinished_run` have any, a
    /// pipeline of which a run's time has come that has no number yet, and that of the `next_run`. 1 now or null, 2 null, 3 list of
    /// pipelines to pass over.
    pub(super) look: &'static str,
    /// Running runs whose lease ran out, oldest first; those that somebody else takes over are left out. 1 now, 2 limit.
    pub(super) lost_runs: &'static str,
    /// The committing run to be resumed next. 1 now.
    pub(super) unfinished_run: &'static str,
    /// Of the due queued runs that overlap no held run and no queued run with a lower number, and whose pipeline has neither a
    /// held run of another definition nor a due one with a lower number: of the principal whose last turn is the longest ago, the one
    /// of the highest priority, and among these of the lowest number. Where two that name
    /// their partitions overlap, the held one has the lower number: it had it when it was claimed, and keeps it while it is
    /// held. So the lowest number has the partition, held or queued, and no other need be looked at.
    /// It is one of those that are behind nobody, which are looked at alone.
    /// 1 now or, for the database's own clock, null, 2 its pipeline or null, 3 list of pipelines to pass over.
    pub(super) next_run: &'static str,
    /// Its principal's turn is over. 1 run.
    pub(super) take_turn: &'static str,
    /// Those that are behind a run that has ended are behind nobody. There are none: the database lets them go.
    pub(super) free_stranded: &'static str,
}

/// What tables sum up to, in one database's dialect.
#[derive(Debug)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct SumStatements {
    /// A table's version, and nobody else raises it until the transaction ends. 1 pipeline.
    pub(super) lock_table: &'static str,
    /// Decided partitions whose content or definition changes: what they become and what they were, each null where they are not.
    /// 1 run, 2 pipeline, 3 list of keys or null for all, 4 definition.
    pub(super) changes: &'static str,
    /// The sum and the version that it is of. 1 pipeline.
    pub(super) kept: &'static str,
    /// 1 pipeline, 2 version, 3 sum.
    pub(super) keep: &'static str,
}

/// What is told of runs, in one database's dialect.
#[derive(Debug)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct OutboxStatements {
    /// What is told of a run, and who is told. 1 run.
    pub(super) told: &'static str,
    /// 1 id, 2 run, 3 kind, 4 URL or null, 5 host, 6 event, 7 notice, 8 now, 9 principal.
    pub(super) insert_message: &'static str,
    /// The message that has been due longest; of the lineage of a run the first one that is pending. It is looked for among the first
    /// ones of each principal and host, so that a backlog of some is not walked through for the others. 1 now, 2 when it is due
    /// again, 3 token, 4 list of kinds, 5 list of hosts to pass over, 6 list of principals whose webhooks are passed over.
    pub(super) claim_message: &'static str,
    /// Unless somebody else has it in hand. 1 position, 2 token, 3 state, 4 due, 5 status, 6 error, 7 now.
    pub(super) save_try: &'static str,
    /// What waits for a message of a run's lineage is due no sooner than it. 1 position, 2 due.
    pub(super) put_off_later_lineage: &'static str,
    /// The same as `save_try`, where it is lineage that was told. 1 position, 2 token.
    pub(super) drop_told_lineage: &'static str,
    /// Of each kind those that are pending and those that were given up.
    pub(super) outbox_depth: &'static str,
}

/// The statements of what goes when it is old.
#[derive(Debug)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct PruneStatements {
    /// A table's version after the oldest that can be told, which nobody else prunes until the transaction ends. 1 committed
    /// before.
    pub(super) version: &'static str,
    /// What partitions were before a version changed them, but for the file of one that it left as it was. 1 pipeline, 2 version.
    pub(super) history: &'static str,
    /// 1 pipeline, 2 the oldest version that can be told from now on.
    pub(super) begin_history: &'static str,
    /// Runs in the order of their ends, and whether anything refers to them. 1 ended before, 2 and 3 after this time and run,
    /// 4 limit.
    pub(super) ended_runs: &'static str,
    /// Those that may go, which nobody else moves until the transaction ends. 1 list of runs, 2 ended before.
    pub(super) lock_runs: &'static str,
    /// 1 list of runs.
    pub(super) labels: &'static str,
    /// 1 list of runs.
    pub(super) attempts: &'static str,
    /// 1 list of runs.
    pub(super) scopes: &'static str,
    /// 1 list of runs.
    pub(super) runs: &'static str,
}
