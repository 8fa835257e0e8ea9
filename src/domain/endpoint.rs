//! The calls that Weir relays, and the dialect each one speaks.
//!
//! Which path leads to which endpoint is `vllm`'s table; how a dialect looks on the wire is
//! `openai`'s. This is only their common name.

/// The shape of a request's body, its answer, its stream and its errors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// OpenAI chat completions: `data:` frames with `choices[].delta`, ended by `[DONE]`.
    Chat,
    /// OpenAI completions: `data:` frames with `choices[].text`, ended by `[DONE]`.
    Completions,
    /// OpenAI responses: named events with `sequence_number`, no `[DONE]`.
    Responses,
    /// Anthropic messages: named events, no `[DONE]`, errors of their own shape.
    Messages,
    /// Answered whole: embeddings, scores, lists.
    Unary,
}

/// A call on the allow-list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Endpoint {
    /// `POST /v1/chat/completions`
    ChatCompletions,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`: answered by the tokenizer, holds no permit.
    CountTokens,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `GET /v1/models`: answered by Weir itself, merged over replicas.
    Models,
    /// `POST /score`, `/v1/score`
    Score,
    /// `POST /rerank`, `/v1/rerank`, `/v2/rerank`
    Rerank,
    /// `POST /pooling`
    Pooling,
    /// `POST /classify`
    Classify,
    /// `POST /v1/audio/transcriptions` (a form, not JSON)
    Transcriptions,
    /// `POST /v1/audio/translations` (a form, not JSON)
    Translations,
    /// `POST /tokenize`: answered by the tokenizer, holds no permit.
    Tokenize,
    /// `POST /detokenize`: answered by the tokenizer, holds no permit.
    Detokenize,
}

impl Endpoint {
    /// Every endpoint, in the order of the declaration.
    pub const ALL: [Self; 15] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Responses,
        Self::Messages,
        Self::CountTokens,
        Self::Embeddings,
        Self::Models,
        Self::Score,
        Self::Rerank,
        Self::Pooling,
        Self::Classify,
        Self::Transcriptions,
        Self::Translations,
        Self::Tokenize,
        Self::Detokenize,
    ];

    /// The word for configuration, metric labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::Embeddings => "embeddings",
            Self::Models => "models",
            Self::Score => "score",
            Self::Rerank => "rerank",
            Self::Pooling => "pooling",
            Self::Classify => "classify",
            Self::Transcriptions => "transcriptions",
            Self::Translations => "translations",
            Self::Tokenize => "tokenize",
            Self::Detokenize => "detokenize",
        }
    }

    /// The shape that its bodies, streams and errors have.
    pub const fn dialect(self) -> Dialect {
        match self {
            Self::ChatCompletions => Dialect::Chat,
            Self::Completions => Dialect::Completions,
            Self::Responses => Dialect::Responses,
            Self::Messages | Self::CountTokens => Dialect::Messages,
            _ => Dialect::Unary,
        }
    }

    /// Whether the engine itself runs for it, so that it must hold a permit.
    pub const fn holds_permit(self) -> bool {
        !matches!(self, Self::CountTokens | Self::Models | Self::Tokenize | Self::Detokenize)
    }

    /// Whether it generates tokens (and so may stream, and has a TTFT).
    pub const fn generates(self) -> bool {
        matches!(self, Self::ChatCompletions | Self::Completions | Self::Responses | Self::Messages)
    }
}
