//! Anthropic messages.

use super::{Writer, put};
use crate::sim::Finish;

impl Writer {
    pub(super) fn messages_begin(&self, out: &mut String) {
        let (id, model, input) = (&self.id, &self.model, self.prompt_tokens);
        put(
            out,
            format_args!(
                "event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\"id\":\"{id}\",\
                 \"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":{model},\
                 \"stop_reason\":null,\"stop_sequence\":null,\"usage\":{{\"input_tokens\":{input},\
                 \"output_tokens\":0}}}}}}\n\n\
                 event: content_block_start\ndata: {{\"type\":\"content_block_start\",\
                 \"content_block\":{{\"type\":\"text\",\"text\":\"\"}},\"index\":0}}\n\n"
            ),
        );
    }

    pub(super) fn messages_delta(&self, from: u32, to: u32, out: &mut String) {
        out.push_str(
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\
             \"delta\":{\"type\":\"text_delta\",\"text\":\"",
        );
        self.words(0, from, to, out);
        out.push_str("\"},\"index\":0}\n\n");
    }

    pub(super) fn messages_end(&self, out: &mut String) {
        let (stop, input, output) =
            (self.stop_reason(), self.prompt_tokens, self.completion_tokens());
        put(
            out,
            format_args!(
                "event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":0}}\n\n\
                 event: message_delta\ndata: {{\"type\":\"message_delta\",\
                 \"delta\":{{\"stop_reason\":\"{stop}\",\"stop_sequence\":null}},\
                 \"usage\":{{\"input_tokens\":{input},\"output_tokens\":{output}}}}}\n\n\
                 event: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n"
            ),
        );
    }

    pub(super) fn messages_whole(&self) -> String {
        let (id, model, text) = (&self.id, &self.model, self.said(0));
        let (stop, input, output) =
            (self.stop_reason(), self.prompt_tokens, self.completion_tokens());
        format!(
            "{{\"id\":\"{id}\",\"type\":\"message\",\"role\":\"assistant\",\
             \"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"model\":{model},\
             \"stop_reason\":\"{stop}\",\"stop_sequence\":null,\
             \"usage\":{{\"input_tokens\":{input},\"output_tokens\":{output}}}}}"
        )
    }

    fn stop_reason(&self) -> &'static str {
        match self.said.first().and_then(|said| said.finish) {
            Some(Finish::Stop) => "end_turn",
            Some(Finish::Length) | None => "max_tokens",
        }
    }
}
