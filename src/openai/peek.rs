//! What a request asks for, read off its bytes.
//!
//! A field that decides anything (whose limits apply, which replica, how many tokens) must mean
//! the same here and in the replica. So the whole body is checked to be JSON in UTF-8, escapes in
//! keys are decoded, and such a field standing twice is refused, where Python would silently take
//! the last. Types are held to what OpenAI's API says; pydantic would also take `"true"` for
//! true, and a gateway that did not would be fooled.

use std::ops::Range;
use std::sync::Arc;

use crate::domain::{Dialect, Endpoint, Reason};

use super::json::{Cursor, Fault, Kind, Text, Value};
use super::limits::{Count, count};
use super::prompt::{PromptText, Prompts, count_prompts};
use super::{form, json};

/// Fields at the top of a body; the API has fewer than a hundred.
const MAX_FIELDS: usize = 512;

/// What vLLM takes for `max_tokens` of a completion that names none.
const COMPLETION_DEFAULT_OUTPUT: u32 = 16;

/// What a request asks for. Never its text.
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the request")]
#[derive(Clone, PartialEq, Debug)]
pub struct Peek {
    /// The model's name, as the client wrote it.
    pub model: String,
    /// Whether the answer is to be a stream.
    pub stream: bool,
    /// Whether the client itself asked for the frame with usage.
    pub usage_asked: bool,
    /// Whether it asked for usage in every frame. Without `usage_asked` vLLM ignores it.
    pub continuous_usage: bool,
    /// Sequences that the engine will run, `n` and `best_of` times prompts; at least 1.
    pub sequences: u32,
    /// Bytes of the text that will be tokenized, about: escapes decoded, media at a flat rate.
    pub prompt_bytes: u64,
    /// Prompt tokens of all sequences, exact, where token ids were sent.
    pub prompt_tokens: Option<u32>,
    /// The bound on output tokens a sequence that the replica will read from this body.
    pub max_output: Option<u32>,
    /// Chained hashes of the prompt's leading blocks of [`super::PREFIX_BLOCK_BYTES`].
    pub prefix: Arc<[u64]>,
    /// Whether the answer is to outlive its request.
    pub background: bool,
    /// The earlier response that this one follows, kept by the replica that made it.
    pub previous_response_id: Option<String>,
    /// The client's own salt for the prefix cache.
    pub cache_salt: Option<String>,
    /// How urgent it says that it is, lower first; `None` where that is no whole number.
    pub priority: Option<i64>,
    pub(super) spans: Spans,
}

/// A body that is refused, and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PeekError {
    /// [`Reason::Malformed`] or [`Reason::OutputTokens`].
    pub reason: Reason,
    /// For the application's developer.
    pub message: String,
    /// The field at fault.
    pub param: Option<&'static str>,
}

impl PeekError {
    pub(super) fn malformed(message: impl Into<String>, param: Option<&'static str>) -> Self {
        Self { reason: Reason::Malformed, message: message.into(), param }
    }
}

impl From<Fault> for PeekError {
    fn from(fault: Fault) -> Self {
        let Fault { at, what } = fault;
        Self::malformed(format!("The body is not valid JSON: {what} at byte {at}."), None)
    }
}

/// Where the fields stand that a splice may touch.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Spans {
    /// The opening brace; `None` where nothing can be spliced (a form).
    pub(super) open: Option<usize>,
    /// Every member of the top object, in order.
    pub(super) members: Vec<Member>,
    /// Where the answer can carry a usage frame: what `stream_options` holds.
    pub(super) options: Option<StreamOptions>,
    /// The names under which this endpoint reads a bound on output, the strongest first.
    pub(super) output_fields: &'static [Field],
}

/// One member of the top object.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Member {
    pub(super) key: Text,
    pub(super) field: Option<Field>,
    pub(super) value: Value,
    /// What a field of tokens holds.
    pub(super) count: Option<u32>,
}

impl Member {
    /// Its first byte: the quote that opens its key.
    pub(super) fn start(&self) -> usize {
        self.key.start - 1
    }
}

/// Inside of `stream_options`.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct StreamOptions {
    pub(super) include: Option<Range<usize>>,
    pub(super) continuous: Option<Range<usize>>,
}

macro_rules! fields {
    ($($name:ident = $word:literal;)*) => {
        /// The fields that are looked at.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Field { $($name,)* }

        impl Field {
            const ALL: &'static [Self] = &[$(Self::$name),*];

            pub(super) const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

fields! {
    Model = "model";
    Stream = "stream";
    StreamOptions = "stream_options";
    MaxTokens = "max_tokens";
    MaxCompletionTokens = "max_completion_tokens";
    MaxOutputTokens = "max_output_tokens";
    N = "n";
    BestOf = "best_of";
    Echo = "echo";
    Background = "background";
    PreviousResponseId = "previous_response_id";
    CacheSalt = "cache_salt";
    Priority = "priority";
    Tools = "tools";
    System = "system";
    Instructions = "instructions";
    Query = "query";
    Queries = "queries";
    Text1 = "text_1";
    Messages = "messages";
    Prompt = "prompt";
    Input = "input";
    Text2 = "text_2";
    Documents = "documents";
    Tokens = "tokens";
}

/// Where prompt text stands, in the order in which chat templates put it into the prompt.
const PROMPT_FIELDS: &[Field] = &[
    Field::Tools,
    Field::System,
    Field::Instructions,
    Field::Query,
    Field::Queries,
    Field::Text1,
    Field::Messages,
    Field::Prompt,
    Field::Input,
    Field::Text2,
    Field::Documents,
    Field::Tokens,
];

impl Field {
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|field| field.as_str() == name)
    }

    const fn bit(self) -> u32 {
        1 << (self as u32)
    }
}

/// Reads the body of a call. `content_type` is the header's value, by which forms are cut.
///
/// # Errors
/// Whatever the replica could read otherwise than we would: no JSON, no UTF-8, a missing model, a
/// deciding field twice or of a wrong type ([`Reason::Malformed`]); a bound on output that is no
/// number of tokens ([`Reason::OutputTokens`]).
pub fn peek(
    endpoint: Endpoint,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Peek, PeekError> {
    if matches!(endpoint, Endpoint::Transcriptions | Endpoint::Translations) {
        return form::peek(content_type, body);
    }
    if let Err(error) = std::str::from_utf8(body) {
        let at = error.valid_up_to();
        return Err(PeekError::malformed(format!("The body is not UTF-8 at byte {at}."), None));
    }
    Reader::walk(endpoint, body)?.read()
}

/// One body, walked through once.
struct Reader<'a> {
    endpoint: Endpoint,
    body: &'a [u8],
    spans: Spans,
}

impl<'a> Reader<'a> {
    fn walk(endpoint: Endpoint, body: &'a [u8]) -> Result<Self, PeekError> {
        let mut cursor = Cursor::new(body);
        if cursor.next() != Some(b'{') {
            return Err(PeekError::malformed("The body must be a JSON object.", None));
        }
        let open = Some(cursor.place());
        let mut members = Vec::with_capacity(16);
        let (mut seen, mut twice) = (0_u32, None);
        cursor.members(|cursor, key| {
            let field = cursor.decode(key).and_then(|name| Field::named(&name));
            let bit = field.map_or(0, Field::bit);
            twice = twice.or(field.filter(|_| seen & bit != 0));
            seen |= bit;
            if members.len() == MAX_FIELDS {
                return Err(cursor.fault("more than 512 fields"));
            }
            let value = cursor.value()?;
            members.push(Member { key, field, value, count: None });
            Ok(())
        })?;
        cursor.end()?;
        if let Some(field) = twice.map(Field::as_str) {
            let message = format!("The field `{field}` stands twice in the body.");
            return Err(PeekError::malformed(message, Some(field)));
        }
        let output_fields = match endpoint.dialect() {
            Dialect::Chat => &[Field::MaxCompletionTokens, Field::MaxTokens][..],
            Dialect::Completions | Dialect::Messages => &[Field::MaxTokens],
            Dialect::Responses => &[Field::MaxOutputTokens],
            Dialect::Unary => &[],
        };
        Ok(Self { endpoint, body, spans: Spans { open, members, options: None, output_fields } })
    }

    fn read(mut self) -> Result<Peek, PeekError> {
        let model = self.text(Field::Model)?.ok_or_else(|| {
            let message = "The field `model` is missing: it must name a model.";
            PeekError::malformed(message, Some("model"))
        })?;
        let generates = self.endpoint.generates();
        let stream = generates && self.flag(Field::Stream)?;
        let (usage_asked, continuous_usage) = self.stream_options()?;
        let max_output = self.max_output()?;
        let sequences = self.times(Field::N)?.max(self.times(Field::BestOf)?).max(1);
        let (text, prompts) = self.prompt()?;
        Ok(Peek {
            model,
            stream,
            usage_asked,
            continuous_usage,
            sequences: sequences.saturating_mul(prompts.sequences),
            prompt_bytes: text.bytes,
            prompt_tokens: prompts.tokens.map(|tokens| tokens.saturating_mul(sequences)),
            max_output,
            prefix: text.hasher.finish(),
            background: self.flag(Field::Background)?,
            previous_response_id: self.text(Field::PreviousResponseId)?,
            cache_salt: self.text(Field::CacheSalt)?,
            priority: self.priority(),
            spans: self.spans,
        })
    }

    fn member(&self, field: Field) -> Option<&Member> {
        self.spans.members.iter().find(|member| member.field == Some(field))
    }

    /// A member that is there and not null.
    fn given(&self, field: Field) -> Option<&Member> {
        self.member(field).filter(|member| member.value.kind != Kind::Null)
    }

    fn flag(&self, field: Field) -> Result<bool, PeekError> {
        match self.given(field).map(|member| member.value.kind) {
            None => Ok(false),
            Some(Kind::Bool(set)) => Ok(set),
            Some(_) => Err(wrong(field, "true or false")),
        }
    }

    fn text(&self, field: Field) -> Result<Option<String>, PeekError> {
        match self.given(field).map(|member| member.value.kind) {
            None => Ok(None),
            Some(Kind::Text(text)) => json::decode(self.body, text)
                .map(|text| Some(text.into_owned()))
                .ok_or_else(|| wrong(field, "text without lone surrogates")),
            Some(_) => Err(wrong(field, "a string")),
        }
    }

    fn priority(&self) -> Option<i64> {
        let member = self.given(Field::Priority).filter(|m| m.value.kind == Kind::Number)?;
        std::str::from_utf8(self.body.get(member.value.span.clone())?).ok()?.parse().ok()
    }

    /// `n` or `best_of`; 0 where absent.
    fn times(&self, field: Field) -> Result<u32, PeekError> {
        if !matches!(self.endpoint.dialect(), Dialect::Chat | Dialect::Completions) {
            return Ok(0);
        }
        let Some(member) = self.given(field) else { return Ok(0) };
        match self.number(member) {
            Some(Count::Of(times)) if times > 0 => Ok(times),
            _ => Err(wrong(field, "a whole number of at least 1")),
        }
    }

    fn number(&self, member: &Member) -> Option<Count> {
        let number = self.body.get(member.value.span.clone())?;
        (member.value.kind == Kind::Number).then(|| count(number))
    }

    /// The bound on output that vLLM will read: of several fields the strongest that is given.
    fn max_output(&mut self) -> Result<Option<u32>, PeekError> {
        let mut bound = None;
        for &field in self.spans.output_fields {
            let Some(member) = self.given(field) else { continue };
            let Some(Count::Of(tokens)) = self.number(member) else {
                return Err(no_tokens(field));
            };
            if bound.is_none() {
                bound = Some(tokens);
                // vLLM takes 0 for a completion that only echoes its prompt.
                let echoes = self.endpoint == Endpoint::Completions && self.flag(Field::Echo)?;
                if tokens == 0 && !echoes {
                    return Err(no_tokens(field));
                }
            }
            let at = self.spans.members.iter_mut().find(|member| member.field == Some(field));
            if let Some(member) = at {
                member.count = Some(tokens);
            }
        }
        let absent =
            self.endpoint == Endpoint::Completions && self.member(Field::MaxTokens).is_none();
        Ok(bound.or(absent.then_some(COMPLETION_DEFAULT_OUTPUT)))
    }

    /// `include_usage` and `continuous_usage_stats`.
    fn stream_options(&mut self) -> Result<(bool, bool), PeekError> {
        if !matches!(self.endpoint.dialect(), Dialect::Chat | Dialect::Completions) {
            return Ok((false, false));
        }
        let mut options = StreamOptions::default();
        let (mut asked, mut continuous, mut fault) = (false, false, None);
        if let Some(member) = self.given(Field::StreamOptions) {
            if !matches!(member.value.kind, Kind::Object(_)) {
                return Err(wrong(Field::StreamOptions, "an object"));
            }
            let mut cursor = Cursor::at(self.body, member.value.span.start);
            cursor.members(|cursor, key| {
                let name = cursor.decode(key);
                let value = cursor.value()?;
                let (slot, set) = match name.as_deref() {
                    Some("include_usage") => (&mut options.include, &mut asked),
                    Some("continuous_usage_stats") => (&mut options.continuous, &mut continuous),
                    _ => return Ok(()),
                };
                *set = value.kind == Kind::Bool(true);
                if !matches!(value.kind, Kind::Bool(_) | Kind::Null) {
                    fault = Some("an object of true and false");
                }
                if slot.replace(value.span).is_some() {
                    fault = Some("an object with each field once");
                }
                Ok(())
            })?;
        }
        if let Some(expected) = fault {
            return Err(wrong(Field::StreamOptions, expected));
        }
        self.spans.options = Some(options);
        Ok((asked, continuous))
    }

    fn prompt(&self) -> Result<(PromptText, Prompts), PeekError> {
        let mut text = PromptText::new(self.body.len());
        let mut prompts = Prompts { sequences: 1, tokens: None };
        for &field in PROMPT_FIELDS {
            let Some(member) = self.given(field) else { continue };
            let span = member.value.span.clone();
            if self.lists_prompts(field) {
                let found = count_prompts(self.body, span.start)?;
                prompts.sequences = prompts.sequences.max(found.sequences);
                prompts.tokens = found.tokens;
            }
            text.add(self.body, span, field == Field::Tools);
        }
        Ok((text, prompts))
    }

    /// Whether a list in this field is a list of prompts, each a sequence of its own, and not
    /// one conversation.
    fn lists_prompts(&self, field: Field) -> bool {
        match self.endpoint {
            Endpoint::Completions => field == Field::Prompt,
            Endpoint::Embeddings | Endpoint::Pooling | Endpoint::Classify => field == Field::Input,
            Endpoint::Score | Endpoint::Rerank => {
                matches!(field, Field::Documents | Field::Text1 | Field::Text2 | Field::Queries)
            }
            Endpoint::Detokenize => field == Field::Tokens,
            _ => false,
        }
    }
}

fn wrong(field: Field, expected: &str) -> PeekError {
    let name = field.as_str();
    PeekError::malformed(format!("The field `{name}` must be {expected}."), Some(name))
}

fn no_tokens(field: Field) -> PeekError {
    let name = field.as_str();
    PeekError {
        reason: Reason::OutputTokens,
        message: format!(
            "The field `{name}` must be a whole number of tokens from 1 to {}.",
            u32::MAX
        ),
        param: Some(name),
    }
}
