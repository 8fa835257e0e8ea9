//! Tests of the room as a whole; what belongs to one file alone stands in that file.

mod errors;
mod requests;
mod streams;
