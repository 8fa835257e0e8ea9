//! Chat completions and completions.

use super::{FINGERPRINT, Writer, put};
use crate::replica::call::Shape;
use crate::sim::Finish;

/// What ids begin with.
pub(super) const fn prefix(shape: Shape) -> &'static str {
    match shape {
        Shape::Chat | Shape::Messages => "chatcmpl-",
        Shape::Completions => "cmpl-",
        Shape::Responses => "resp_",
        Shape::Embeddings => "embd-",
    }
}

impl Writer {
    pub(super) fn chunk_head(&self) -> String {
        let object =
            if self.shape == Shape::Chat { "chat.completion.chunk" } else { "text_completion" };
        let (id, created, model) = (&self.id, self.created, &self.model);
        format!(
            "data: {{\"id\":\"{id}\",\"object\":\"{object}\",\"created\":{created},\"model\":{model},\"choices\":["
        )
    }

    /// One role frame a sequence.
    pub(super) fn chat_roles(&self, out: &mut String) {
        for place in 0..self.said.len() {
            out.push_str(&self.head);
            put(
                out,
                format_args!(
                    "{{\"index\":{place},\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}]"
                ),
            );
            self.running_usage(out);
            out.push_str(",\"prompt_token_ids\":null,\"prompt_text\":null}\n\n");
        }
    }

    pub(super) fn chunk(
        &self,
        place: usize,
        from: u32,
        to: u32,
        finish: Option<Finish>,
        out: &mut String,
    ) {
        let chat = self.shape == Shape::Chat;
        out.push_str(&self.head);
        let text = if chat { "\"delta\":{\"content\":\"" } else { "\"text\":\"" };
        put(out, format_args!("{{\"index\":{place},{text}"));
        self.words(place, from, to, out);
        out.push_str(if chat { "\"},\"logprobs\":null," } else { "\",\"logprobs\":null," });
        match (finish, chat) {
            (None, true) => out.push_str("\"finish_reason\":null,\"token_ids\":null}]"),
            (None, false) => out.push_str(
                "\"finish_reason\":null,\"stop_reason\":null,\"prompt_token_ids\":null,\"token_ids\":null}]",
            ),
            (Some(finish), _) => {
                put(out, format_args!("\"finish_reason\":\"{}\",\"stop_reason\":null", finish.as_str()));
                out.push_str(if chat { "" } else { ",\"prompt_token_ids\":null" });
                out.push_str(",\"token_ids\":null}]");
            }
        }
        self.running_usage(out);
        if self.done() && !self.include_usage {
            put(out, format_args!(",\"system_fingerprint\":\"{FINGERPRINT}\""));
        }
        out.push_str("}\n\n");
    }

    fn running_usage(&self, out: &mut String) {
        if self.continuous_usage {
            out.push_str(",\"usage\":{");
            self.usage(out);
            out.push_str(",\"completion_tokens_details\":null}");
        }
    }

    pub(super) fn chunk_end(&self, out: &mut String) {
        if self.include_usage {
            out.push_str(&self.head);
            out.push_str("],\"usage\":{");
            self.usage(out);
            put(out, format_args!("}},\"system_fingerprint\":\"{FINGERPRINT}\"}}\n\n"));
        }
        out.push_str("data: [DONE]\n\n");
    }

    pub(super) fn chat_whole(&self) -> String {
        self.openai_whole("chat.completion", |text, finish, place| {
            format!(
                "{{\"index\":{place},\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\",\"refusal\":null,\
                 \"annotations\":null,\"audio\":null,\"function_call\":null,\"reasoning\":null}},\"logprobs\":null,\
                 \"finish_reason\":\"{finish}\",\"stop_reason\":null,\"token_ids\":null,\"routed_experts\":null}}"
            )
        }, ",\"prompt_logprobs\":null,\"prompt_token_ids\":null,\"prompt_text\":null")
    }

    pub(super) fn completion_whole(&self) -> String {
        self.openai_whole("text_completion", |text, finish, place| {
            format!(
                "{{\"index\":{place},\"text\":\"{text}\",\"logprobs\":null,\"finish_reason\":\"{finish}\",\
                 \"stop_reason\":null,\"token_ids\":null,\"prompt_logprobs\":null,\"prompt_token_ids\":null,\
                 \"routed_experts\":null}}"
            )
        }, "")
    }

    fn openai_whole(
        &self,
        object: &str,
        choice: impl Fn(&str, &str, usize) -> String,
        more: &str,
    ) -> String {
        let choices: Vec<String> = self
            .said
            .iter()
            .enumerate()
            .map(|(place, said)| {
                let finish = said.finish.unwrap_or(Finish::Length).as_str();
                choice(&self.said(place), finish, place)
            })
            .collect();
        let (id, created, model) = (&self.id, self.created, &self.model);
        let mut out = format!(
            "{{\"id\":\"{id}\",\"object\":\"{object}\",\"created\":{created},\"model\":{model},\"choices\":[{}],\
             \"service_tier\":null,\"system_fingerprint\":\"{FINGERPRINT}\",\"usage\":{{",
            choices.join(",")
        );
        self.usage(&mut out);
        out.push_str(",\"prompt_tokens_details\":null,\"completion_tokens_details\":null}");
        out.push_str(more);
        out.push_str(",\"kv_transfer_params\":null,\"ec_transfer_params\":null,\"metrics\":null}");
        out
    }

    pub(super) fn embeddings_whole(&self) -> String {
        let data: Vec<String> = (0..self.said.len())
            .map(|place| {
                format!(
                    "{{\"index\":{place},\"object\":\"embedding\",\"embedding\":[0.5,-0.5,0.5,-0.5]}}"
                )
            })
            .collect();
        let (id, created, model, tokens) =
            (&self.id, self.created, &self.model, self.prompt_tokens);
        format!(
            "{{\"id\":\"{id}\",\"object\":\"list\",\"created\":{created},\"model\":{model},\"data\":[{}],\
             \"usage\":{{\"prompt_tokens\":{tokens},\"total_tokens\":{tokens},\"completion_tokens\":0,\
             \"prompt_tokens_details\":null}}}}",
            data.join(",")
        )
    }
}
