//! Small integer names, so that the dispatcher copies and compares numbers, never strings.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// One client request, from its arrival to its one outcome. Unique in a process.
    RequestId(u64)
);
id!(
    /// One vLLM server. Stays the same for one address as long as the process lives, so that a
    /// replica which leaves and comes back finds its ledger as it was.
    ReplicaId(u32)
);
id!(
    /// A holder of keys: a number that follows from its name, so it is no index. 0 is "anyone",
    /// where no tenants are configured.
    TenantId(u32)
);
id!(
    /// A kind of workload. 0 is the class of a pool that configures none.
    ClassId(u16)
);
