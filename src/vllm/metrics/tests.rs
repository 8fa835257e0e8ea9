use proptest::prelude::*;

use super::*;

const IDLE: &[u8] = include_bytes!("../../../tests/recorded/metrics-0.32-idle.txt");
const LOADED: &[u8] = include_bytes!("../../../tests/recorded/metrics-0.32-loaded.txt");

fn parse(text: &str) -> Sample {
    parse_metrics(text.as_bytes(), Timestamp::ZERO, Timestamp::ZERO).unwrap()
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

#[test]
fn a_loaded_vllm_is_read_exactly() {
    let expected = Sample {
        asked: at(5),
        taken: at(7),
        engines: 1,
        running: Some(16),
        waiting: Some(24),
        kv_usage: Some(0.027_350_427_350_427_364),
        kv_capacity_tokens: Some(524_288),
        block_size: Some(128),
        preemptions: Some(0),
        prefix_queries: Some(34_249),
        prefix_hits: Some(9_344),
        prompt_tokens: Some(34_249),
        generation_tokens: Some(14_211),
        finished: Some(70),
        start_time_seconds: Some(1_795_983_927.89),
        asleep: Some(false),
    };
    assert_eq!(parse_metrics(LOADED, at(5), at(7)), Ok(expected));
}

#[test]
fn an_idle_vllm_reads_zero_where_zero_was_said() {
    let sample = parse_metrics(IDLE, at(0), at(0)).unwrap();
    assert_eq!((sample.running, sample.waiting), (Some(0), Some(0)));
    assert_eq!(sample.kv_usage, Some(0.0));
    assert_eq!(sample.prefix_hits, Some(3_584));
    assert_eq!(sample.generation_tokens, Some(1_488));
    assert_eq!(sample.finished, Some(27));
}

#[test]
fn old_names_are_read_and_both_at_once_count_once() {
    let old = "vllm:gpu_cache_usage_perc{engine=\"0\"} 0.5\n\
               vllm:gpu_prefix_cache_queries_total{engine=\"0\"} 100\n\
               vllm:gpu_prefix_cache_hits{engine=\"0\"} 40\n";
    let sample = parse(old);
    assert_eq!(sample.kv_usage, Some(0.5));
    assert_eq!((sample.prefix_queries, sample.prefix_hits), (Some(100), Some(40)));

    let new = "vllm:kv_cache_usage_perc{engine=\"0\"} 0.6\n\
               vllm:prefix_cache_queries{engine=\"0\"} 7\n\
               vllm:prefix_cache_hits_total{engine=\"0\"} 3\n";
    for both in [format!("{old}{new}"), format!("{new}{old}")] {
        let sample = parse(&both);
        assert_eq!(sample.kv_usage, Some(0.6));
        assert_eq!((sample.prefix_queries, sample.prefix_hits), (Some(7), Some(3)));
    }
}

#[test]
fn engines_are_added_up_and_the_fullest_cache_counts() {
    let sample = parse(
        "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n\
         vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4.0\n\
         vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0.0\n\
         vllm:num_requests_waiting{engine=\"1\",model_name=\"m\"} 9.0\n\
         vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.9\n\
         vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.2\n\
         vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"100\"} 1.0\n\
         vllm:cache_config_info{engine=\"1\",block_size=\"16\",num_gpu_blocks=\"200\"} 1.0\n\
         vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 1.0\n\
         vllm:engine_sleep_state{engine=\"1\",sleep_state=\"awake\"} 0.0\n\
         vllm:engine_sleep_state{engine=\"1\",sleep_state=\"discard_all\"} 1.0\n",
    );
    assert_eq!(sample.engines, 2);
    assert_eq!((sample.running, sample.waiting), (Some(7), Some(9)));
    assert_eq!(sample.kv_usage, Some(0.9));
    assert_eq!((sample.kv_capacity_tokens, sample.block_size), (Some(4_800), Some(16)));
    assert_eq!(sample.asleep, Some(true));
}

#[test]
fn openmetrics_with_timestamps_exemplars_and_eof_reads_the_same() {
    let sample = parse(
        "# TYPE vllm:num_preemptions counter\n\
         vllm:num_preemptions_total{engine=\"0\"} 12.0 1795983927.89 # {trace_id=\"a}b\"} 1.0 5\n\
         vllm:num_preemptions_created{engine=\"0\"} 1.795983927e+09\n\
         # TYPE vllm:num_requests_running gauge\n\
         vllm:num_requests_running{engine=\"0\",model_name=\"a \\\"b\\\" } 1\"} 2.0e0 1795983927\r\n\
         process_start_time_seconds 1.5e9\n\
         # EOF\n",
    );
    assert_eq!(sample.preemptions, Some(12));
    assert_eq!(sample.running, Some(2));
    assert_eq!(sample.start_time_seconds, Some(1.5e9));
}

#[test]
fn what_is_no_number_is_unknown_not_zero() {
    for odd in ["NaN", "+Inf", "-Inf", "-1"] {
        let sample = parse(&format!(
            "vllm:num_requests_running 1\nvllm:kv_cache_usage_perc {odd}\n\
             vllm:num_requests_waiting{{engine=\"0\"}} {odd}\n\
             vllm:num_requests_waiting{{engine=\"1\"}} 3\n"
        ));
        assert_eq!((sample.kv_usage, sample.waiting), (None, None), "{odd}");
        assert_eq!(sample.running, Some(1));
    }
    let none = parse("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n");
    assert_eq!((none.kv_capacity_tokens, none.block_size), (None, Some(16)));
    assert_eq!((none.running, none.kv_usage, none.asleep), (None, None, None));
    let huge = parse("vllm:num_requests_running 1e300\nvllm:kv_cache_usage_perc 7\n");
    assert_eq!((huge.running, huge.kv_usage), (Some(u32::MAX), Some(1.0)));
}

#[test]
fn sglang_is_read_by_its_own_names() {
    let sample = parse(
        "sglang:num_running_reqs{model_name=\"m\",dp_rank=\"0\"} 5.0\n\
         sglang:num_running_reqs{model_name=\"m\",dp_rank=\"1\"} 6.0\n\
         sglang:num_queue_reqs{model_name=\"m\"} 2.0\n\
         sglang:token_usage{model_name=\"m\"} 0.25\n\
         sglang:max_total_num_tokens{model_name=\"m\"} 4096.0\n\
         sglang:prompt_tokens_total{model_name=\"m\"} 10.0\n\
         sglang:generation_tokens_total{model_name=\"m\"} 20.0\n",
    );
    assert_eq!((sample.engines, sample.running, sample.waiting), (2, Some(11), Some(2)));
    assert_eq!((sample.kv_usage, sample.kv_capacity_tokens), (Some(0.25), Some(4_096)));
    assert_eq!((sample.prompt_tokens, sample.generation_tokens), (Some(10), Some(20)));
}

#[test]
fn a_text_without_an_engine_is_no_reading() {
    for text in ["", "<html></html>", "process_start_time_seconds 1\n", "vllm:unheard_of 1\n"] {
        let result = parse_metrics(text.as_bytes(), at(0), at(0));
        assert_eq!(result, Err(MetricsError::Unknown), "{text}");
    }
}

#[test]
fn a_known_metric_that_cannot_be_read_spoils_the_scrape_and_says_where() {
    let error = |text: &str| parse_metrics(text.as_bytes(), at(0), at(0)).unwrap_err();
    assert_eq!(error("# c\nvllm:num_requests_running{a=\"1\n"), MetricsError::Labels(2));
    assert_eq!(error("vllm:num_requests_running{a=\"1\"} x\n"), MetricsError::Value(1));
    assert_eq!(error("vllm:num_requests_running \n"), MetricsError::Value(1));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ignored = parse_metrics(&bytes, at(0), at(0)).is_ok();
    }

    #[test]
    fn no_damage_to_a_real_scrape_makes_it_panic(
        cut in 0..LOADED.len(),
        hits in proptest::collection::vec((0..LOADED.len(), any::<u8>()), 0..60),
    ) {
        let mut bytes = LOADED.to_vec();
        for (at, byte) in hits {
            bytes[at] = byte;
        }
        let _whole = parse_metrics(&bytes, at(0), at(0)).is_ok();
        let _cut = parse_metrics(&bytes[cut..], at(0), at(0)).is_ok();
    }

    #[test]
    fn hostile_lines_never_panic_and_never_turn_into_zero(
        labels in "[{}\"\\\\,=a-c ]{0,12}", value in "[-+0-9a-zA-Z.# ]{0,10}",
    ) {
        let text = format!("vllm:num_requests_running{{{labels}}} {value}\n");
        if let Ok(sample) = parse_metrics(text.as_bytes(), at(0), at(0))
            && sample.running == Some(0)
        {
            prop_assert!(value.contains(['0', '1', '2', '3', '4', 'e']), "{}", text);
        }
    }
}
