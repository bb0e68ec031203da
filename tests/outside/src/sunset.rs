//! An error model that loses every packet after an instant.

use backchannel_node::core::options;
use backchannel_node::core::options::{CheckedOptions, REQUIRED};
use backchannel_node::core::registry::{Disorder, Entry};
use backchannel_node::core::rng::RunRng;
use backchannel_node::core::Error;
use backchannel_node::core::{Packet, Time};
use backchannel_node::links::errors::{ErrorModel, Outcome};

options! {
    /// Options of the model.
    struct Parameters {
        at_s: f64 = REQUIRED, [Time 0 to 1e6] "packets that arrive later are lost";
    }
}

pub(crate) static ENTRY: Entry =
    Entry::error_model("sunset", "loses every packet after an instant", Disorder::None).options(Parameters::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, _: RunRng) -> Result<Box<dyn ErrorModel>, Error> {
    Ok(Box::new(Sunset { at: Time::from_seconds(Parameters::read(checked).at_s) }))
}

struct Sunset {
    at: Time,
}

impl ErrorModel for Sunset {
    fn apply(&mut self, at: Time, _: &Packet) -> Outcome {
        if at > self.at {
            Outcome::Lost
        } else {
            Outcome::Intact
        }
    }
}
