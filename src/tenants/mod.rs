//! PURE: rights, rates, budgets and usage counts of the holders of keys.
