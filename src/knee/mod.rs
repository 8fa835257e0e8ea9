//! PURE: the search for the knee, and verdicts on a load level.
//!
//! The knee is the highest rate at which the targets hold. [`Search`] says which rate to offer
//! next and is told what was seen there; a [`Level`] judges it. Who offers the load is not known
//! here: `load` does it live, `sim` in virtual time.

mod binding;
mod level;
mod search;

pub use binding::{Binding, Shown, binding};
pub use level::{Judgement, Level, Observed, Targets, Verdict};
pub use search::{Ask, Found, Search, SearchOptions};
