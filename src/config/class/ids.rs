//! What a class's id means from one reload to the next, and what the dispatcher is told of it.

use std::sync::Arc;

use crate::dispatch::ClassPolicy;
use crate::domain::{ClassId, Slo};

use super::{ClassConfig, Classes};

/// Ids in use, those of classes that are gone among them. Several times what one file may hold,
/// so that an id is given to another class only when forty others have come and gone since: long
/// after the last request that bore it.
const MOST_IDS: usize = 64;

impl Classes {
    /// The same classes, with the ids under which the running process knows their names. A new
    /// name gets an id that none had; one that comes back gets its own again.
    #[must_use]
    pub(in crate::config) fn keep_ids(mut self, running: &Self) -> Self {
        let mut names = running.names.to_vec();
        let live: Vec<_> = self.list.iter().map(|class| Arc::clone(&class.name)).collect();
        for class in &mut self.list {
            let own = names.iter().position(|name| *name == class.name);
            let gone = || names.iter().position(|name| !live.contains(name));
            let full = names.len() >= MOST_IDS;
            let at = own.or_else(|| gone().filter(|_| full)).unwrap_or(names.len());
            match names.get_mut(at) {
                Some(name) => *name = Arc::clone(&class.name),
                None => names.push(Arc::clone(&class.name)),
            }
            class.id = ClassId(u16::try_from(at).unwrap_or_default());
        }
        self.names = names.into();
        self
    }

    /// What the dispatcher of a pool goes by: a policy for every id, in the order of the ids. A
    /// target that a class does not give is the pool's; a class that is gone has none, so that
    /// nothing is held to it any more.
    pub(in crate::config) fn policies(&self, pool: Slo) -> Vec<ClassPolicy> {
        let ids = (0..).map(ClassId).zip(self.names.iter());
        let policy = |id| match self.list.iter().find(|class| class.id == id) {
            Some(ClassConfig { slo, share, critical, .. }) => {
                ClassPolicy { id, slo: over(*slo, pool), share: *share, critical: *critical }
            }
            None => ClassPolicy::plain(id, Slo::default()),
        };
        ids.map(|(id, _)| policy(id)).collect()
    }
}

fn over(class: Slo, pool: Slo) -> Slo {
    Slo {
        ttft: class.ttft.or(pool.ttft),
        tpot: class.tpot.or(pool.tpot),
        itl: class.itl.or(pool.itl),
        e2e: class.e2e.or(pool.e2e),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::DEFAULT_CLASS;
    use super::*;

    fn classes(names: &[&str]) -> Classes {
        let class = |name: &&str| ClassConfig {
            id: ClassId(0),
            name: (*name).into(),
            slo: Slo::default(),
            share: 1.0,
            critical: false,
            rule: None,
        };
        Classes::new([DEFAULT_CLASS].iter().chain(names).map(class).collect())
    }

    fn ids(classes: &Classes) -> Vec<(&str, u16)> {
        classes.all().iter().map(|class| (&*class.name, class.id.0)).collect()
    }

    #[test]
    fn a_name_keeps_its_id_through_any_order_and_gets_it_back() {
        let first = classes(&["chat", "batch"]);
        assert_eq!(ids(&first), [("default", 0), ("chat", 1), ("batch", 2)]);
        let second = classes(&["agent", "batch", "chat"]).keep_ids(&first);
        assert_eq!(ids(&second), [("default", 0), ("agent", 3), ("batch", 2), ("chat", 1)]);
        let third = classes(&["agent"]).keep_ids(&second);
        assert_eq!(ids(&third), [("default", 0), ("agent", 3)]);
        assert_eq!(third.names().len(), 4, "what still runs has its name");
        let fourth = classes(&["chat"]).keep_ids(&third);
        assert_eq!(ids(&fourth), [("default", 0), ("chat", 1)]);
    }

    #[test]
    fn ids_are_few_however_often_classes_are_renamed() {
        let mut running = classes(&["kept"]);
        for round in 0..500 {
            let names = [format!("a{round}"), format!("b{round}"), "kept".to_owned()];
            let next = classes(&names.each_ref().map(String::as_str)).keep_ids(&running);
            let mut seen: Vec<_> = next.all().iter().map(|class| class.id).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 4, "no two classes share an id");
            assert!(next.all().iter().all(|c| next.names()[usize::from(c.id.0)] == c.name));
            running = next;
        }
        assert_eq!(running.names().len(), MOST_IDS);
        assert_eq!(ids(&running)[3], ("kept", 1));
    }

    #[test]
    fn policies_are_dense_and_what_is_gone_is_held_to_nothing() {
        let gone = classes(&["old", "chat"]);
        let mut now = classes(&["chat"]).keep_ids(&gone);
        let second = Some(Duration::from_secs(1));
        now.list[1].slo.ttft = Some(Duration::from_millis(300));
        now.list[1].critical = true;
        let policies = now.policies(Slo { ttft: second, tpot: second, ..Slo::default() });
        let seen: Vec<_> = policies.iter().map(|p| (p.id.0, p.slo.ttft, p.critical)).collect();
        let own = Some(Duration::from_millis(300));
        assert_eq!(seen, [(0, second, false), (1, None, false), (2, own, true)]);
        assert_eq!(policies[2].slo.tpot, second, "the pool's where it says nothing");
    }
}
