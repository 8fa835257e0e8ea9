//! Metrics, logs and the access log: names, labels and handles, resolved once.
