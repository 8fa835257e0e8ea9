//! PURE: percentiles with intervals, batch means, slopes, warm-up cuts.
