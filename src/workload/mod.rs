//! PURE: what is sent: classes, lengths, arrivals, client retry models.
