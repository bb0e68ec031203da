//! The mechanisms of this software.

use backchannel_core::registry::Table;
use backchannel_quic::AnyStacks;

use crate::registry::{Build, Registry};
use crate::{errors, grant, leo, mahimahi, point_to_point, ricochet, serial, wavelan, wifi};

impl Registry {
    /// The mechanisms of this software.
    pub fn builtin() -> Registry {
        Registry {
            policies: backchannel_policies::builtin(),
            links: Table::<Build>::new(
                "link kind",
                &[
                    (&grant::ENTRY, grant::build),
                    (&leo::ENTRY, leo::build),
                    (&mahimahi::ENTRY, mahimahi::build),
                    (&point_to_point::ENTRY, point_to_point::build),
                    (&ricochet::ENTRY, ricochet::build),
                    (&wavelan::ENTRY, wavelan::build),
                    (&wifi::ENTRY, wifi::build),
                ],
            ),
            directions: vec![&serial::DIRECTION, &mahimahi::DIRECTION],
            error_models: errors::builtin(),
            middleboxes: backchannel_middleboxes::builtin(),
            stacks: AnyStacks::builtin(),
            workloads: backchannel_workloads::builtin(),
        }
    }
}
