//! Tests of the whole dispatcher: the faults that users of such gateways reported, by name, and
//! what must hold for any interleaving.

mod cases;
mod fair;
mod kit;
mod overload;
mod props;
mod returning;
mod turns;
