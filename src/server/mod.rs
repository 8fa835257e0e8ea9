//! Listeners, TLS, routes, and the admin side.
