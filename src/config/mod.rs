//! PURE: from the operator's file to typed, checked settings, and the difference of two.
