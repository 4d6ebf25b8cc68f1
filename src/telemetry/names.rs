//! The names of the metrics, and what each says.

/// A kind of metric, as its `# TYPE` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts in buckets.
    Histogram,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

macro_rules! metrics_are {
    ($($constant:ident $kind:ident $name:literal $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: &str = $name;
        )*

        /// Each metric with its kind and help.
        pub const METRICS: &[(&str, Kind, &str)] = &[$(($name, Kind::$kind, $help)),*];
    };
}

metrics_are! {
    METRIC_REQUESTS Counter "refrain_http_requests_total" "HTTP requests by method, route and status";
    METRIC_REQUEST_SECONDS Histogram "refrain_http_request_duration_seconds" "Seconds that HTTP requests took, by method and route";
    METRIC_REQUESTS_IN_FLIGHT Gauge "refrain_http_requests_in_flight" "HTTP requests that are being answered";
    METRIC_WAITERS Gauge "refrain_http_waiting_requests" "Requests that wait for the end of a run";
    METRIC_EVENT_STREAMS Gauge "refrain_event_streams" "Streams of events that are open";
    METRIC_READERS Gauge "refrain_readers" "Processes that read rows of partitions for clients";

    METRIC_HTTP_CONNECTIONS Gauge "refrain_http_connections" "Open connections of clients";
    METRIC_HTTP_CONNECTIONS_REFUSED Counter "refrain_http_connections_refused_total" "Connections closed unserved, by the limit that they would have broken";
    METRIC_CERTIFICATE_SECONDS Gauge "refrain_tls_certificate_expires_seconds" "Seconds until the certificate in force ends; below 0 when it has ended";

    METRIC_RUNS Gauge "refrain_runs" "Runs by state: queued, scheduled (queued until their time, not_before), running, committing";
    METRIC_OLDEST_DUE_SECONDS Gauge "refrain_oldest_due_run_seconds" "Seconds that the oldest due run has been waiting";
    METRIC_DUE_RUNS Gauge "refrain_pipeline_due_runs" "Queued runs that are due, by pipeline";
    METRIC_PIPELINE_OLDEST_DUE_SECONDS Gauge "refrain_pipeline_oldest_due_run_seconds" "Seconds that the oldest due run has been waiting, by pipeline";
    METRIC_LAST_SUCCESS Gauge "refrain_last_success_timestamp_seconds" "When a run last succeeded, in seconds since 1970, by pipeline";
    METRIC_RUNS_ENDED Counter "refrain_runs_ended_total" "Runs that ended, by pipeline and outcome, as this process recorded it";
    METRIC_RETRIES Counter "refrain_retries_total" "Runs that were queued again, by reason: the class of the failure, how the attempt ended, or request";

    METRIC_ATTEMPTS Counter "refrain_attempts_total" "Attempts that ended, by outcome and class of failure";
    METRIC_ATTEMPT_SECONDS Histogram "refrain_attempt_seconds" "Seconds that attempts took, by pipeline";
    METRIC_STAGE_SECONDS Histogram "refrain_stage_seconds" "Seconds that stages of attempts took, by stage";
    METRIC_ROWS Counter "refrain_rows_total" "Rows of sources, by pipeline and what became of them: in_scope, out_of_scope, filtered, rejected";
    METRIC_SOURCE_BYTES Counter "refrain_source_bytes_total" "Bytes of the source files that attempts computed from, by pipeline";
    METRIC_ROWS_WRITTEN Counter "refrain_rows_written_total" "Rows of the partitions that runs created or replaced, by pipeline";
    METRIC_BYTES_WRITTEN Counter "refrain_bytes_written_total" "Bytes of the partitions that runs created or replaced, by pipeline";
    METRIC_PARTITIONS Counter "refrain_partitions_total" "Partitions of runs that succeeded, by pipeline and outcome";
    METRIC_LEASES_LOST Counter "refrain_leases_lost_total" "Leases that a worker found lost, by what it was doing";
    METRIC_REFUSED_STEPS Counter "refrain_refused_steps_total" "Steps of workers whose claim was no longer the run's, which the database refused, by step";
    METRIC_ENGINE_DEATHS Counter "refrain_engine_deaths_total" "Engines that died, by how: memory (its own limit), killed (SIGKILL), signal, exit";
    METRIC_PUBLISH_FAILURES Counter "refrain_publish_failures_total" "Tries to publish what was decided that failed, by pipeline";
    METRIC_STAGING_LOST Counter "refrain_staging_lost_total" "Decided runs whose staged files were gone, by pipeline";
    METRIC_PUBLISH_LOCK_SECONDS Gauge "refrain_publish_lock_held_seconds" "Seconds that a table's publish lock has been held, by pipeline";
    METRIC_WORKERS Gauge "refrain_workers" "Workers of this process by state: idle, busy, stuck";

    METRIC_PRUNED Counter "refrain_runs_pruned_total" "Ended runs forgotten by this server (--keep-runs-days)";
    METRIC_SWEPT Counter "refrain_staging_folders_swept_total" "Staging folders removed by the sweeper";
    METRIC_SWEEP_FAILURES Counter "refrain_sweep_failures_total" "Rounds of the sweeper that failed";

    METRIC_NOTIFICATIONS Gauge "refrain_notifications" "Messages to webhooks and lineage that were not delivered, by kind and state: pending, gave_up";
    METRIC_NOTIFICATION_OLDEST_SECONDS Gauge "refrain_oldest_pending_notification_seconds" "Seconds that the oldest pending message has been waiting, by kind";
    METRIC_NOTIFICATION_TRIES Counter "refrain_notification_tries_total" "Tries to deliver a message, by kind and outcome: delivered, failed, gave_up";

    METRIC_CONNECTIONS Gauge "refrain_database_connections" "Connections to the database by state, idle or used, when a transaction last began";
    METRIC_CONNECTIONS_MAX Gauge "refrain_database_connections_max" "Connections to the database, at most";
    METRIC_CONNECTION_WAITERS Gauge "refrain_database_connection_waiters" "Transactions that wait for a connection";
    METRIC_TRANSACTION_SECONDS Histogram "refrain_database_transaction_seconds" "Seconds that transactions took with the wait for a connection, by access: statement, read, write";
    METRIC_CONFLICTS Counter "refrain_database_conflicts_total" "Transactions that the database undid for another's sake, and that were done again";
    METRIC_DATABASE_FAILURES Counter "refrain_database_failures_total" "Transactions that the database did not answer or broke off";

    METRIC_CHECK_OK Gauge "refrain_check_ok" "Whether a check of readyz is all right (1) or not (0), by check";
    METRIC_SPANS Counter "refrain_trace_spans_total" "Spans by what became of them: exported, failed (the collector refused or did not answer), dropped (the queue was full)";
    METRIC_BUILD_INFO Gauge "refrain_build_info" "1, with the version of the binary";

    METRIC_PROCESS_CPU Counter "process_cpu_seconds_total" "Seconds of processor time of this process and of the engines that have ended";
    METRIC_PROCESS_RESIDENT Gauge "process_resident_memory_bytes" "Resident memory in bytes";
    METRIC_PROCESS_VIRTUAL Gauge "process_virtual_memory_bytes" "Virtual memory in bytes";
    METRIC_PROCESS_OPEN_FDS Gauge "process_open_fds" "Open file descriptors";
    METRIC_PROCESS_MAX_FDS Gauge "process_max_fds" "Open file descriptors, at most";
    METRIC_PROCESS_THREADS Gauge "process_threads" "Threads";
    METRIC_PROCESS_START Gauge "process_start_time_seconds" "When the process started, in seconds since 1970";
}

/// The kind and help of a metric.
pub(super) fn described(name: &str) -> Option<(Kind, &'static str)> {
    METRICS.iter().find(|(known, _, _)| *known == name).map(|(_, kind, help)| (*kind, *help))
}

/// Tells the recorder what each is.
pub(super) fn describe() {
    for (name, kind, help) in METRICS {
        match kind {
            Kind::Counter => metrics::describe_counter!(*name, *help),
            Kind::Gauge => metrics::describe_gauge!(*name, *help),
            Kind::Histogram => metrics::describe_histogram!(*name, *help),
        }
    }
}
