//! OpenAI responses: named events, each with its number; the last one carries the whole answer.

use std::fmt::Arguments;

use super::{Writer, put};
use crate::sim::Finish;

impl Writer {
    fn event(&mut self, name: &str, body: Arguments<'_>, out: &mut String) {
        self.event_more(name, body, format_args!(""), out);
    }

    /// Keys are in the order of the alphabet, and `text` comes after `sequence_number`.
    fn event_more(
        &mut self,
        name: &str,
        body: Arguments<'_>,
        more: Arguments<'_>,
        out: &mut String,
    ) {
        let number = self.number;
        self.number += 1;
        put(
            out,
            format_args!(
                "event: {name}\ndata: {{{body},\"sequence_number\":{number}{more},\"type\":\"{name}\"}}\n\n"
            ),
        );
    }

    fn item(&self) -> String {
        format!("msg_{}", self.id.trim_start_matches("resp_"))
    }

    fn part(&self, logprobs: &str) -> String {
        let text = self.said(0);
        format!(
            "{{\"annotations\":[],\"text\":\"{text}\",\"type\":\"output_text\",\"logprobs\":{logprobs}}}"
        )
    }

    fn message(&self) -> String {
        let (item, part) = (self.item(), self.part("null"));
        format!(
            "{{\"id\":\"{item}\",\"content\":[{part}],\"role\":\"assistant\",\"status\":\"completed\",\
             \"type\":\"message\",\"phase\":null}}"
        )
    }

    /// The object that `created`, `in_progress` and `completed` carry.
    fn response(&self, ended: bool) -> String {
        let (id, created, model) = (&self.id, self.created, &self.model);
        let most = self.max_output.map_or_else(|| "null".to_owned(), |most| most.to_string());
        let cut = self.said.first().and_then(|said| said.finish) == Some(Finish::Length);
        let details = if ended && cut { "{\"reason\":\"max_output_tokens\"}" } else { "null" };
        let status = match (ended, cut) {
            (false, _) => "in_progress",
            (true, true) => "incomplete",
            (true, false) => "completed",
        };
        let output = if ended { self.message() } else { String::new() };
        let usage = if ended {
            let (input, output) = (self.prompt_tokens, self.completion_tokens());
            let total = input.saturating_add(output);
            format!(
                "{{\"input_tokens\":{input},\"input_tokens_details\":{{\"cached_tokens\":0,\
                 \"cache_write_tokens\":0,\"input_tokens_per_turn\":[],\"cached_tokens_per_turn\":[]}},\
                 \"output_tokens\":{output},\"output_tokens_details\":{{\"reasoning_tokens\":0,\
                 \"tool_output_tokens\":0,\"output_tokens_per_turn\":[],\
                 \"tool_output_tokens_per_turn\":[]}},\"total_tokens\":{total}}}"
            )
        } else {
            "null".to_owned()
        };
        format!(
            "{{\"id\":\"{id}\",\"created_at\":{created},\"incomplete_details\":{details},\
             \"instructions\":null,\"metadata\":null,\"model\":{model},\"object\":\"response\",\
             \"output\":[{output}],\"parallel_tool_calls\":true,\"temperature\":1.0,\
             \"tool_choice\":\"none\",\"tools\":[],\"top_p\":1.0,\"background\":false,\
             \"max_output_tokens\":{most},\"max_tool_calls\":null,\"previous_response_id\":null,\
             \"prompt\":null,\"reasoning\":null,\"service_tier\":\"auto\",\"status\":\"{status}\",\
             \"text\":null,\"top_logprobs\":null,\"truncation\":\"disabled\",\"usage\":{usage},\
             \"user\":null,\"presence_penalty\":0.0,\"frequency_penalty\":0.0,\
             \"kv_transfer_params\":null,\"ec_transfer_params\":null,\"input_messages\":null,\
             \"output_messages\":null}}"
        )
    }

    pub(super) fn responses_open(&mut self, out: &mut String) {
        let response = self.response(false);
        self.event("response.created", format_args!("\"response\":{response}"), out);
        self.event("response.in_progress", format_args!("\"response\":{response}"), out);
    }

    pub(super) fn responses_begin(&mut self, out: &mut String) {
        let item = self.item();
        self.event(
            "response.output_item.added",
            format_args!(
                "\"item\":{{\"id\":\"{item}\",\"content\":[],\"role\":\"assistant\",\
                 \"status\":\"in_progress\",\"type\":\"message\",\"phase\":null}},\"output_index\":0"
            ),
            out,
        );
        self.event(
            "response.content_part.added",
            format_args!(
                "\"content_index\":0,\"item_id\":\"{item}\",\"output_index\":0,\
                 \"part\":{{\"annotations\":[],\"text\":\"\",\"type\":\"output_text\",\"logprobs\":[]}}"
            ),
            out,
        );
    }

    pub(super) fn responses_delta(&mut self, from: u32, to: u32, out: &mut String) {
        let item = self.item();
        let mut text = String::new();
        self.words(0, from, to, &mut text);
        self.event(
            "response.output_text.delta",
            format_args!(
                "\"content_index\":0,\"delta\":\"{text}\",\"item_id\":\"{item}\",\"logprobs\":[],\
                 \"output_index\":0"
            ),
            out,
        );
    }

    pub(super) fn responses_end(&mut self, out: &mut String) {
        let (item, text) = (self.item(), self.said(0));
        let (part, message, response) = (self.part("null"), self.message(), self.response(true));
        self.event_more(
            "response.output_text.done",
            format_args!(
                "\"content_index\":0,\"item_id\":\"{item}\",\"logprobs\":[],\"output_index\":0"
            ),
            format_args!(",\"text\":\"{text}\""),
            out,
        );
        self.event(
            "response.content_part.done",
            format_args!(
                "\"content_index\":0,\"item_id\":\"{item}\",\"output_index\":0,\"part\":{part}"
            ),
            out,
        );
        self.event(
            "response.output_item.done",
            format_args!("\"item\":{message},\"output_index\":0"),
            out,
        );
        self.event("response.completed", format_args!("\"response\":{response}"), out);
    }

    pub(super) fn responses_whole(&self) -> String {
        self.response(true)
    }
}
