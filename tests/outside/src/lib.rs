//! A crate that stands for one outside the repository: a mechanism of each kind, and a node that has them beside those
//! of Backchannel. It depends on `backchannel-node` alone and patches nothing. Its tests run simulations with each.

mod delivery_rate;
mod drop_nth;
mod fixed_window;
mod pigeon;
mod steps;
mod stubborn;
mod sunset;
mod thin_acks;

use backchannel_node::Registry;

/// Backchannel's mechanisms and this crate's.
pub fn registry() -> Registry {
    Registry::builtin()
        .policy(&drop_nth::ENTRY, drop_nth::build)
        .controller("delivery-rate", delivery_rate::build)
        .controller("fixed-window", fixed_window::build)
        .controller("stubborn", stubborn::build)
        .link(&pigeon::ENTRY, pigeon::build)
        .error_model(&sunset::ENTRY, sunset::build)
        .middlebox(&thin_acks::ENTRY, thin_acks::build)
        .workload(&steps::ENTRY, steps::build)
}

#[cfg(test)]
mod tests;
