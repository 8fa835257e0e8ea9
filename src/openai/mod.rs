//! PURE: what travels in bodies and streams.
//!
//! - [`peek()`] reads what a request asks for, and [`Peek::splice`] changes the few fields that the
//!   gateway answers for; every other byte goes on as it came.
//! - [`Scanner`] watches a stream of server-sent events go by: which frames carry content, what
//!   the engine caused, the usage, the end. It forwards, it does not rewrite.
//! - [`ErrorBody`], [`stream_error`] and [`objectify_error`] say what went wrong in the shape that
//!   the client's SDK understands, [`describe`] in words for its developer.
//!
//! No tree of a prompt or a frame is ever built: the walker in `json` passes over the bytes and
//! hands out spans of them. Which path leads to which endpoint is `vllm`'s table.

mod broken;
mod error;
mod form;
mod frame;
mod json;
mod limits;
mod peek;
mod prefix;
mod prompt;
mod scanner;
mod splice;
mod sse;
mod usage;
mod words;

pub use broken::stream_error;
pub use error::{ErrorBody, objectify_error};
pub use peek::{Peek, PeekError, peek};
pub use prefix::PREFIX_BLOCK_BYTES;
pub use scanner::{Scan, Scanner, StreamError};
pub use splice::Edits;
pub use usage::unary_usage;
pub use words::{describe, sentence};

#[cfg(test)]
mod tests;
