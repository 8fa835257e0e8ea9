//! An ordered set of weighted levels that knows the weighted area below any level.
//!
//! Tenants stand at levels (tokens had over weight), and who is served up to a level `x` gets
//! `weight * (x - level)` tokens by then. How much goes before somebody who stands at `x` is a sum
//! of that over all who stand lower. A plain ordered map would have to walk them; here every
//! subtree carries its own sum, so a question costs O(log n) like everything else.
//!
//! It is a treap: a search tree by level that is a heap by a mixed counter, so it stays shallow
//! whatever the order of insertion, without a source of randomness. Sums are kept relative to the
//! node they belong to: levels grow for as long as the process lives, and differences of large
//! numbers would lose what counts.

use std::cmp::Ordering;

use crate::domain::TenantId;

/// A place in the order: by level, and at one level first come, first served.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Mark {
    /// Tokens over weight.
    pub(super) level: f64,
    /// Unique, rising with time.
    pub(super) ticket: u64,
}

impl Eq for Mark {}

impl Ord for Mark {
    fn cmp(&self, other: &Self) -> Ordering {
        self.level.total_cmp(&other.level).then(self.ticket.cmp(&other.ticket))
    }
}

impl PartialOrd for Mark {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What lies below a level.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Below {
    /// Sum of `weight * (x - level)`.
    pub(super) area: f64,
    /// How many.
    pub(super) count: usize,
}

#[derive(Debug)]
struct Node {
    mark: Mark,
    tenant: TenantId,
    weight: f64,
    priority: u64,
    left: Link,
    right: Link,
    /// Over the subtree: sum of weights, of `weight * (level - own level)`, and the count.
    weights: f64,
    moment: f64,
    count: usize,
}

type Link = Option<Box<Node>>;

/// The set.
#[derive(Debug, Default)]
pub(super) struct Levels {
    root: Link,
    inserted: u64,
}

impl Levels {
    /// How many stand in it.
    pub(super) fn len(&self) -> usize {
        self.root.as_ref().map_or(0, |node| node.count)
    }

    /// Takes one in. Marks are unique by their tickets.
    pub(super) fn insert(&mut self, mark: Mark, tenant: TenantId, weight: f64) {
        self.inserted += 1;
        let priority = mix(self.inserted);
        let mut node = Box::new(Node {
            mark,
            tenant,
            weight,
            priority,
            left: None,
            right: None,
            weights: 0.0,
            moment: 0.0,
            count: 0,
        });
        node.pull();
        self.root = Some(insert(self.root.take(), node));
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, mark: Mark) {
        self.root = remove(self.root.take(), mark);
    }

    /// The lowest.
    pub(super) fn first(&self) -> Option<(Mark, TenantId)> {
        let mut at = self.root.as_deref()?;
        while let Some(left) = at.left.as_deref() {
            at = left;
        }
        Some((at.mark, at.tenant))
    }

    /// The highest.
    pub(super) fn last(&self) -> Option<(Mark, TenantId)> {
        let mut at = self.root.as_deref()?;
        while let Some(right) = at.right.as_deref() {
            at = right;
        }
        Some((at.mark, at.tenant))
    }

    /// The lowest above `mark`.
    pub(super) fn after(&self, mark: Mark) -> Option<(Mark, TenantId)> {
        let (mut at, mut best) = (self.root.as_deref(), None);
        while let Some(node) = at {
            if node.mark > mark {
                best = Some((node.mark, node.tenant));
                at = node.left.as_deref();
            } else {
                at = node.right.as_deref();
            }
        }
        best
    }

    /// What lies below `level`; who stands at it exactly has no area, but is counted.
    pub(super) fn below(&self, level: f64) -> Below {
        let (mut at, mut below) = (self.root.as_deref(), Below::default());
        while let Some(node) = at {
            if node.mark.level > level {
                at = node.left.as_deref();
                continue;
            }
            let rise = level - node.mark.level;
            if let Some(left) = node.left.as_deref() {
                below.area += left.weights * (level - left.mark.level) - left.moment;
                below.count += left.count;
            }
            below.area += node.weight * rise;
            below.count += 1;
            at = node.right.as_deref();
        }
        below
    }
}

impl Node {
    /// Makes the sums anew from its children's.
    fn pull(&mut self) {
        (self.weights, self.moment, self.count) = (self.weight, 0.0, 1);
        for child in [&self.left, &self.right].into_iter().flatten() {
            self.weights += child.weights;
            self.moment += child.moment + child.weights * (child.mark.level - self.mark.level);
            self.count += child.count;
        }
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "nodes live in boxes; unboxing would copy")]
fn insert(tree: Link, mut node: Box<Node>) -> Box<Node> {
    let Some(mut top) = tree else { return node };
    if node.priority > top.priority {
        let (left, right) = split(Some(top), node.mark);
        (node.left, node.right) = (left, right);
        node.pull();
        return node;
    }
    let side = if node.mark < top.mark { &mut top.left } else { &mut top.right };
    *side = Some(insert(side.take(), node));
    top.pull();
    top
}

fn remove(tree: Link, mark: Mark) -> Link {
    let mut top = tree?;
    let side = match mark.cmp(&top.mark) {
        Ordering::Equal => return merge(top.left.take(), top.right.take()),
        Ordering::Less => &mut top.left,
        Ordering::Greater => &mut top.right,
    };
    *side = remove(side.take(), mark);
    top.pull();
    Some(top)
}

/// Below `mark`, and the rest.
fn split(tree: Link, mark: Mark) -> (Link, Link) {
    let Some(mut top) = tree else { return (None, None) };
    if top.mark < mark {
        let (left, right) = split(top.right.take(), mark);
        top.right = left;
        top.pull();
        (Some(top), right)
    } else {
        let (left, right) = split(top.left.take(), mark);
        top.left = right;
        top.pull();
        (left, Some(top))
    }
}

/// Joins two trees, all of the first below all of the second.
fn merge(low: Link, high: Link) -> Link {
    match (low, high) {
        (None, tree) | (tree, None) => tree,
        (Some(mut low), Some(mut high)) => {
            if low.priority > high.priority {
                low.right = merge(low.right.take(), Some(high));
                low.pull();
                Some(low)
            } else {
                high.left = merge(Some(low), high.left.take());
                high.pull();
                Some(high)
            }
        }
    }
}

/// `SplitMix64` (Steele, Lea, Flood 2014): a counter in, well mixed bits out.
const fn mix(counter: u64) -> u64 {
    let mut z = counter.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn depth(link: &Link) -> usize {
        link.as_ref().map_or(0, |node| 1 + depth(&node.left).max(depth(&node.right)))
    }

    #[test]
    fn it_stays_shallow_whatever_the_order() {
        let mut levels = Levels::default();
        for ticket in 0..10_000 {
            let level = f64::from(u32::try_from(ticket).unwrap());
            levels.insert(Mark { level, ticket }, TenantId(0), 1.0);
        }
        assert_eq!(levels.len(), 10_000);
        assert!(depth(&levels.root) < 60, "{}", depth(&levels.root));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_walk(
            steps in prop::collection::vec((any::<bool>(), 0_u16..40, 1_u8..9), 1..120),
            at in 0_u16..44,
            base in prop_oneof![Just(0.0), Just(1e12)],
        ) {
            let (mut levels, mut plain) = (Levels::default(), Vec::<(Mark, f64)>::new());
            for (ticket, (enter, level, weight)) in (0..).zip(steps) {
                if enter || plain.is_empty() {
                    let mark = Mark { level: base + f64::from(level), ticket };
                    levels.insert(mark, TenantId(0), f64::from(weight));
                    plain.push((mark, f64::from(weight)));
                } else {
                    let gone = plain.swap_remove(usize::from(level) % plain.len());
                    levels.remove(gone.0);
                }
            }
            let mut marks: Vec<_> = plain.iter().map(|(mark, _)| *mark).collect();
            marks.sort();
            prop_assert_eq!(levels.len(), marks.len());
            prop_assert_eq!(levels.first().map(|(mark, _)| mark), marks.first().copied());
            prop_assert_eq!(levels.last().map(|(mark, _)| mark), marks.last().copied());
            for pair in marks.windows(2) {
                prop_assert_eq!(levels.after(pair[0]).map(|(mark, _)| mark), Some(pair[1]));
            }
            let x = base + f64::from(at);
            let lower = plain.iter().filter(|(mark, _)| mark.level <= x);
            let area: f64 = lower.clone().map(|(mark, weight)| weight * (x - mark.level)).sum();
            let below = levels.below(x);
            prop_assert_eq!(below.count, lower.count());
            prop_assert!((below.area - area).abs() < 1e-6 * (1.0 + area), "{:?} {area}", below);
        }
    }
}
