//! An inference request's body, read for what the engine needs of it.

use serde_json::Value;

use super::errors::Refusal;
use super::text::{MESSAGE_TOKENS, Measure, Prompt};

/// Most sequences a call, so that a stray `n` does not flood the engine.
const MOST_SEQUENCES: u64 = 128;

/// How a call is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Chat,
    Completions,
    Responses,
    Messages,
    Embeddings,
}

impl Shape {
    /// The field that limits the answer.
    fn limit(self, body: &Value) -> &Value {
        let named = |name| body.get(name).filter(|value| !value.is_null());
        let found = match self {
            Self::Chat => named("max_completion_tokens").or_else(|| named("max_tokens")),
            Self::Responses => named("max_output_tokens"),
            Self::Completions | Self::Messages => named("max_tokens"),
            Self::Embeddings => None,
        };
        found.unwrap_or(&Value::Null)
    }
}

#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the request")]
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Call {
    pub(super) shape: Shape,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) continuous_usage: bool,
    /// Sequences a prompt.
    pub(super) n: u32,
    pub(super) prompts: Vec<Prompt>,
    pub(super) max_output: Option<u32>,
    pub(super) ignore_eos: bool,
}

impl Call {
    /// Reads a body; `served` is the only model there is.
    pub(super) fn read(
        shape: Shape,
        body: &[u8],
        served: &str,
        block_size: u32,
    ) -> Result<Self, Refusal> {
        let body: Value = serde_json::from_slice(body).map_err(|error| Refusal::json(&error))?;
        if !body.is_object() {
            return Err(Refusal::bad("Input should be a valid dictionary", None));
        }
        if let Some(asked) = body.get("model").and_then(Value::as_str)
            && asked != served
        {
            return Err(Refusal::model(asked, served));
        }
        let flag = |value: Option<&Value>| value.and_then(Value::as_bool).unwrap_or(false);
        let options = body.get("stream_options");
        let option = |name| flag(options.and_then(|options| options.get(name)));
        let max_output = match shape.limit(&body) {
            Value::Null if shape == Shape::Completions => Some(16),
            Value::Null => None,
            value => Some(
                value
                    .as_u64()
                    .filter(|limit| *limit >= 1)
                    .map(|limit| u32::try_from(limit).unwrap_or(u32::MAX))
                    .ok_or_else(|| {
                        Refusal::bad("max_tokens must be at least 1", Some("max_tokens"))
                    })?,
            ),
        };
        let n = body.get("n").and_then(Value::as_u64).unwrap_or(1).clamp(1, MOST_SEQUENCES);
        let prompts = prompts(shape, &body, block_size)?;
        Ok(Self {
            shape,
            stream: flag(body.get("stream")) && shape != Shape::Embeddings,
            include_usage: option("include_usage"),
            continuous_usage: option("include_usage") && option("continuous_usage_stats"),
            n: u32::try_from(n).unwrap_or(1),
            prompts,
            max_output,
            ignore_eos: flag(body.get("ignore_eos")),
        })
    }

    /// Sequences in all.
    pub(super) fn sequences(&self) -> usize {
        self.prompts.len() * self.n as usize
    }

    /// Prompt tokens in all, each prompt once.
    pub(super) fn prompt_tokens(&self) -> u32 {
        self.prompts.iter().fold(0, |sum, prompt| sum.saturating_add(prompt.tokens))
    }
}

fn prompts(shape: Shape, body: &Value, block_size: u32) -> Result<Vec<Prompt>, Refusal> {
    let salt = body.get("cache_salt").and_then(Value::as_str).unwrap_or_default();
    let measure = || Measure::new(block_size, salt);
    let field = match shape {
        Shape::Chat | Shape::Messages => "messages",
        Shape::Completions => "prompt",
        Shape::Responses | Shape::Embeddings => "input",
    };
    let missing = || Refusal::bad(&format!("Field required: {field}"), Some(field));
    let value = body.get(field).filter(|value| !value.is_null()).ok_or_else(missing)?;
    if matches!(shape, Shape::Completions | Shape::Embeddings)
        && let Some(list) = value.as_array()
        && !list.first().is_some_and(Value::is_number)
    {
        if list.is_empty() || list.len() > 1024 {
            return Err(missing());
        }
        return Ok(list.iter().map(|one| measured(measure(), one)).collect());
    }
    let mut whole = measure();
    for name in ["system", "instructions", "tools"] {
        if let Some(before) = body.get(name) {
            walk(&mut whole, before);
        }
    }
    Ok(vec![measured(whole, value)])
}

fn measured(mut measure: Measure, value: &Value) -> Prompt {
    walk(&mut measure, value);
    measure.done()
}

/// Every text and token id below a value, in order.
fn walk(measure: &mut Measure, value: &Value) {
    match value {
        Value::String(text) => measure.text(text),
        Value::Number(id) => measure.token(id.as_u64().unwrap_or_default()),
        Value::Array(list) => list.iter().for_each(|one| walk(measure, one)),
        Value::Object(fields) => {
            if let Some(role) = fields.get("role").and_then(Value::as_str) {
                measure.text(role);
                measure.overhead(MESSAGE_TOKENS);
            }
            for name in ["content", "text", "description", "name"] {
                if let Some(value) = fields.get(name) {
                    walk(measure, value);
                }
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(shape: Shape, body: &str) -> Result<Call, Refusal> {
        Call::read(shape, body.as_bytes(), "tiny", 16)
    }

    #[test]
    fn limits_counts_and_prompts_are_found() {
        let call = read(
            Shape::Chat,
            r#"{"model":"tiny","n":2,"max_completion_tokens":9,"stream":true,
                "stream_options":{"include_usage":true},
                "messages":[{"role":"user","content":[{"type":"text","text":"12345678"}]}]}"#,
        )
        .unwrap();
        assert_eq!((call.sequences(), call.max_output, call.prompt_tokens()), (2, Some(9), 7));
        assert!(call.stream && call.include_usage && !call.continuous_usage);
        let lists = read(Shape::Completions, r#"{"prompt":[[1,2,3],[4]],"n":2}"#).unwrap();
        assert_eq!((lists.sequences(), lists.prompt_tokens(), lists.max_output), (4, 4, Some(16)));
        assert_eq!(read(Shape::Completions, r#"{"prompt":[1,2,3]}"#).unwrap().sequences(), 1);
    }

    #[test]
    fn what_is_wrong_is_said_as_vllm_says_it() {
        let status = |shape, body| read(shape, body).unwrap_err().status.as_u16();
        assert_eq!(status(Shape::Chat, "{"), 400);
        assert_eq!(status(Shape::Chat, r#"{"model":"nope","messages":[]}"#), 404);
        assert_eq!(status(Shape::Chat, r#"{"model":"tiny"}"#), 400);
        assert_eq!(status(Shape::Chat, r#"{"messages":[],"max_tokens":-1}"#), 400);
    }
}
