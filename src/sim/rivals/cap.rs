//! A fixed cap on each replica: nginx's `limit_conn` or HAProxy's `maxconn`.

use super::Law;

/// So many in flight at each replica; `None` is no cap at all.
#[derive(Clone, Copy, Debug)]
pub struct Cap(pub Option<u32>);

impl Law for Cap {
    fn admits(&self, _in_flight: u32) -> bool {
        true
    }

    fn admits_at(&self, _replica: usize, in_flight: u32) -> bool {
        self.0.is_none_or(|cap| in_flight < cap)
    }
}
