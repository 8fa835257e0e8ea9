//! Classes: kinds of workload, how a request of one is recognised, and what each is held to.
//!
//! Recognition lives here and not in `proxy`, because two ask it: the request's path, and the
//! compilation that refuses a class which no request can ever be recognised as. Were there two
//! readings of a rule, a file could be found right and mean something else.
//!
//! A class is known inside by a [`ClassId`] and outside by its name. The id is an index, and
//! means the same class for as long as the process lives, whatever a reload does to the order of
//! the file ([`Classes::keep_ids`]): what waits or runs keeps its class.

mod compile;
mod cover;
mod ids;
mod rule;

use std::sync::Arc;

use crate::domain::{ClassId, Slo};

pub(super) use compile::{Known, compile};
pub use rule::{Asked, ClassRule};

/// The class of what no other class takes; always there, always [`ClassId`] 0.
pub const DEFAULT_CLASS: &str = "default";

/// One class.
#[derive(Clone, PartialEq, Debug)]
pub struct ClassConfig {
    /// What the dispatcher knows it by.
    pub id: ClassId,
    /// What metrics, logs and `/status` know it by.
    pub name: Arc<str>,
    /// Its own targets; one that it does not give is the pool's.
    pub slo: Slo,
    /// Its part of the tokens under contention, beside the other classes' parts.
    pub share: f64,
    /// Whether it goes before all that are not.
    pub critical: bool,
    /// How its requests are recognised; `None` for the default.
    pub rule: Option<ClassRule>,
}

/// All classes of a configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Classes {
    /// The default, and the others in the order of the file.
    list: Vec<ClassConfig>,
    /// The name of every id in use, those of classes that are gone among them.
    names: Arc<[Arc<str>]>,
}

impl Classes {
    /// Of the default and the others in their order, with ids from 0 on.
    fn new(mut list: Vec<ClassConfig>) -> Self {
        for (id, class) in (0..).zip(&mut list) {
            class.id = ClassId(id);
        }
        let names = list.iter().map(|class| Arc::clone(&class.name)).collect();
        Self { list, names }
    }

    /// The default first, then the others in the order in which they are tried.
    pub fn all(&self) -> &[ClassConfig] {
        &self.list
    }

    /// The name of every id that may be met, indexed by it: also of classes that a reload has
    /// taken away, whose last requests may still be running.
    pub fn names(&self) -> &Arc<[Arc<str>]> {
        &self.names
    }

    /// The first class that takes this request. Allocates nothing.
    pub fn recognise(&self, asked: &Asked<'_>) -> ClassId {
        let takes = |class: &&ClassConfig| class.rule.as_ref().is_some_and(|r| r.takes(asked));
        self.list.iter().find(takes).map_or(ClassId::default(), |class| class.id)
    }
}
