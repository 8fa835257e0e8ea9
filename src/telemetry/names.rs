//! Every metric's name and help text. The only file that has them.

/// A metric as it is shown to those who read `/metrics`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    /// Its name, with the unit where it has one.
    pub(super) id: &'static str,
    /// What it says, in one line.
    pub(super) help: &'static str,
}

macro_rules! names {
    ($($name:ident = $id:literal, $help:literal;)*) => {
        $(pub(super) const $name: Name = Name { id: $id, help: $help };)*
        /// All of them, in the order of the declaration.
        #[cfg(test)]
        pub(super) const ALL: &[Name] = &[$($name),*];
    };
}

names! {
    // Requests, by pool, endpoint and class.
    OFFERED = "weir_requests_offered_total",
        "Requests that ended, whatever their end. The denominator of goodput.";
    REQUESTS = "weir_requests_total",
        "Requests by their one outcome (completed, rejected, evicted, cancelled, failed) and, where there is one, its reason.";
    GOOD = "weir_requests_good_total",
        "Requests that completed and met every target of their class. Goodput is this over offered.";
    SHED = "weir_requests_shed_total",
        "Requests refused or taken out of the queue with a Retry-After, by reason.";
    SHED_LIMIT = "weir_shed_limit",
        "The limit that the last request shed for a reason met, in the unit of the label.";
    SHED_READING = "weir_shed_reading",
        "What stood against that limit, in the same unit.";
    SHED_READING_AGE = "weir_shed_reading_age_seconds",
        "Age of the oldest outside reading that took part in it; 0 where local counts decided.";
    RETRY_AFTER = "weir_retry_after_seconds",
        "What shed clients were told to wait.";
    TTFT = "weir_time_to_first_token_seconds",
        "Request fully received to the first frame with content. Completed streams only.";
    TPOT = "weir_time_per_output_token_seconds",
        "(last - first content frame) / (output tokens - 1). Completed streams of two tokens or more.";
    TPOT_EXCLUDED = "weir_time_per_output_token_excluded_total",
        "Completed streams of a single token, which have no time per output token.";
    ITL = "weir_inter_token_latency_seconds",
        "Gaps between content frames. Completed streams only.";
    E2E = "weir_e2e_request_latency_seconds",
        "Request fully received to its last byte. Completed requests only.";
    QUEUE_WAIT = "weir_request_queue_time_seconds",
        "Time in Weir's own queue, all attempts together. Completed requests only.";
    FIRST_FRAME = "weir_first_frame_seconds",
        "Last dispatch to the first frame that the engine caused. Completed requests only.";
    INPUT_TOKENS = "weir_input_tokens_total",
        "Prompt tokens, as the replicas reported them.";
    OUTPUT_TOKENS = "weir_output_tokens_total",
        "Generated tokens, as the replicas reported them.";
    CACHED_TOKENS = "weir_cached_tokens_total",
        "Prompt tokens found in a prefix cache, as the replicas reported them.";
    FRAMES = "weir_content_frames_total",
        "Content frames relayed.";
    BYTES = "weir_response_bytes_total",
        "Bytes of answers relayed to clients.";

    // Replicas.
    RETRIES = "weir_retries_total",
        "Attempts beyond a request's first.";
    ATTEMPT_FAILURES = "weir_attempt_failures_total",
        "Attempts that failed before a byte was relayed, by replica and how.";
    UPSTREAM = "weir_upstream_responses_total",
        "Answers of replicas by class of their status.";
    SCRAPE_FAILURES = "weir_scrape_failures_total",
        "Readings of a replica's metrics that failed.";
    NOTES = "weir_replica_notes_total",
        "What the dispatcher noticed of a replica (stale, restarted, ejected, ..).";
    REPLICA_IN_FLIGHT = "weir_replica_in_flight_requests",
        "Requests of this gateway that a replica holds.";
    REPLICA_LIMIT = "weir_replica_limit_requests",
        "Requests that the gate allows a replica.";
    REPLICA_ASSUMED = "weir_replica_limit_assumed",
        "1 where that limit is an assumption, 0 where it is a measured knee.";
    REPLICA_FOREIGN = "weir_replica_foreign_requests",
        "Load that others put on a replica, as of the last reading. Absent while unknown.";
    REPLICA_PREFILL = "weir_replica_prefill_tokens",
        "Uncached prompt tokens sent to a replica and not yet answered by a first token.";
    REPLICA_KV = "weir_replica_kv_tokens",
        "KV tokens held by or promised to requests of this gateway.";
    REPLICA_RUNNING = "weir_replica_running_requests",
        "Sequences that the engine runs, as last read. Absent while unknown.";
    REPLICA_WAITING = "weir_replica_waiting_requests",
        "Sequences that wait inside the engine, as last read. Absent while unknown.";
    REPLICA_KV_USAGE = "weir_replica_kv_cache_usage_ratio",
        "Share of KV blocks in use, 0 to 1, as last read. Absent while unknown.";
    REPLICA_PREEMPTIONS = "weir_replica_preemptions_total",
        "Sequences whose KV cache the engine took back, as last read. Absent while unknown.";
    REPLICA_PREFIX_QUERIES = "weir_replica_prefix_queried_tokens_total",
        "Prompt tokens that the engine looked up in its prefix cache, as last read. Absent while unknown.";
    REPLICA_PREFIX_HITS = "weir_replica_prefix_hit_tokens_total",
        "Prompt tokens that it found there, as last read. Absent while unknown.";
    REPLICA_READING_AGE = "weir_replica_reading_age_seconds",
        "Age of the last reading of a replica's metrics. Absent before the first.";
    REPLICA_UP = "weir_replica_up",
        "1 where the last probe found a replica healthy, else 0. Absent before the first.";
    REPLICA_EJECTED = "weir_replica_ejected",
        "1 while passive health keeps a replica out.";
    REPLICA_DRAINING = "weir_replica_draining",
        "1 while a replica takes nothing new.";

    // Pools.
    IN_FLIGHT = "weir_in_flight_requests",
        "Requests that the pool's replicas hold.";
    LIMIT = "weir_limit_requests",
        "The sum of the pool's limits.";
    COMPLETIONS = "weir_completions_per_second",
        "Completions a second, as the gate measures them for Retry-After.";
    QUEUE_DEPTH = "weir_queue_requests",
        "Requests that wait in the queue.";
    QUEUE_BYTES = "weir_queue_bytes",
        "Bytes of body held by requests that wait.";
    QUEUE_OLDEST = "weir_queue_oldest_wait_seconds",
        "How long the oldest of them has waited.";
    QUEUE_ESTIMATE = "weir_queue_estimated_wait_seconds",
        "How long a request that came now would wait, as estimated.";
    QUEUE_BOUND = "weir_queue_wait_limit_seconds",
        "The longest that a request may wait in the queue.";
    SLO_TARGET = "weir_slo_target_seconds",
        "What requests of a class are held to, by target (ttft, tpot, itl, e2e). Absent where there is no target.";
    LIMITS_OUTDATED = "weir_limits_outdated",
        "1 where the limits were measured on another vLLM than the replicas run, else 0.";
    SCALING_WANTED = "weir_scaling_wanted_replicas",
        "Replicas that the load of the last minute asks of this gateway, shed load included, at one replica's limit each; not rounded, to be added up over gateways. Absent while no limit is known.";
    SCALING_QUEUE = "weir_scaling_queue_wait_ratio",
        "The queue's wait, that of its oldest request or as estimated for the next, over its bound.";

    // Configuration, listeners, the process.
    CONFIG_GENERATION = "weir_config_generation",
        "Configurations taken so far; 0 before the first.";
    CONFIG_INFO = "weir_config_info",
        "1, with the hash of the configuration in force.";
    CONFIG_SUCCESS = "weir_config_last_reload_successful",
        "1 where the last attempt to load a configuration was taken, 0 where it was refused.";
    CONFIG_FAILURES = "weir_config_reload_failures_total",
        "Configurations that were refused; the one before stays in force.";
    CONFIG_TIME = "weir_config_last_reload_success_timestamp_seconds",
        "When the configuration in force was taken, seconds since the epoch.";
    BUILD_INFO = "weir_build_info",
        "1, with the version of this binary.";
    ACCEPT_ERRORS = "weir_accept_errors_total",
        "Connections that the operating system could not hand over (out of descriptors, ..).";
    CONNECTIONS = "weir_connections",
        "Open client connections.";
    CONNECTIONS_TOTAL = "weir_connections_total",
        "Client connections by how they began: accepted, over the cap, or failed in the TLS handshake.";
    HEADS_REFUSED = "weir_heads_refused_total",
        "Requests refused before they were requests, by reason: heads too large, too slow or not HTTP, connections over the cap.";
    TASK_PANICS = "weir_task_panics_total",
        "Tasks that panicked, by name. Each is a fault of Weir's.";
    LOG_DROPPED = "weir_log_lines_dropped_total",
        "Log lines dropped because whoever reads the log was too slow.";
    OPEN_FDS = "process_open_fds",
        "Open file descriptors.";
    MAX_FDS = "process_max_fds",
        "Most file descriptors that the process may open.";
    RESIDENT = "process_resident_memory_bytes",
        "Resident memory.";
    CPU = "process_cpu_seconds_total",
        "User and system CPU time.";
    START_TIME = "process_start_time_seconds",
        "When the process started, seconds since the epoch.";
}
