//! The mechanisms of a program, by name: those of this software and what others add.

use backchannel_core::options::{CheckedOptions, Param};
use backchannel_core::registry::{Entry, Table};
use backchannel_core::scenario::LinkSpec;
use backchannel_core::traits::Link;
use backchannel_core::Error;
use backchannel_middleboxes::Middleboxes;
use backchannel_policies::Policies;
use backchannel_quic::AnyStacks;
use backchannel_stacks::config::BuildController;
use backchannel_workloads::Workloads;

use crate::errors::{self, ErrorModels};

/// Constructor of a link.
pub type Build = fn(&CheckedOptions<'_>, &LinkSpec, &Context) -> Result<Box<dyn Link>, Error>;
/// Link kinds by name.
pub type Links = Table<Build>;

/// Every mechanism that a scenario can name. A value, which drivers hand down to what they build:
///
/// ```
/// use backchannel_links::Registry;
///
/// let registry = Registry::builtin();
/// assert!(registry.entries().iter().any(|entry| entry.name == "ack-filtering"));
/// ```
///
/// `tests/outside` adds a mechanism of each kind.
#[derive(Clone, Debug)]
pub struct Registry {
    /// Queue policies.
    pub policies: Policies,
    /// Link kinds.
    pub links: Links,
    /// Options of one direction of a link kind.
    pub directions: Vec<&'static Entry>,
    /// Error models.
    pub error_models: ErrorModels,
    /// Middleboxes.
    pub middleboxes: Middleboxes,
    /// Named stacks, and their congestion controllers.
    pub stacks: AnyStacks,
    /// Workloads.
    pub workloads: Workloads,
}

impl Registry {
    /// Adds a queue policy.
    ///
    /// # Panics
    /// There is one of that name, here and below.
    pub fn policy(mut self, entry: &'static Entry, build: backchannel_policies::Build) -> Registry {
        self.policies.add(entry, build);
        self
    }

    /// Adds a congestion controller, as a choice of the option `congestion` of every stack.
    pub fn controller(self, name: &'static str, build: BuildController) -> Registry {
        self.controller_with(name, &[], build)
    }

    /// Adds a congestion controller with options of its own, which it reads by `Config::added`.
    pub fn controller_with(mut self, name: &'static str, params: &'static [Param], build: BuildController) -> Registry {
        self.stacks.add_controller(name, params, build);
        self
    }

    /// Adds a link kind.
    pub fn link(mut self, entry: &'static Entry, build: Build) -> Registry {
        self.links.add(entry, build);
        self
    }

    /// Adds the options that a link kind has in each direction.
    pub fn direction(mut self, entry: &'static Entry) -> Registry {
        self.directions.push(entry);
        self
    }

    /// Adds an error model.
    pub fn error_model(mut self, entry: &'static Entry, build: errors::Build) -> Registry {
        self.error_models.add(entry, build);
        self
    }

    /// Adds a middlebox.
    pub fn middlebox(mut self, entry: &'static Entry, build: backchannel_middleboxes::Build) -> Registry {
        self.middleboxes.add(entry, build);
        self
    }

    /// Adds a workload.
    pub fn workload(mut self, entry: &'static Entry, build: backchannel_workloads::Build) -> Registry {
        self.workloads.add(entry, build);
        self
    }

    /// The entries of all kinds.
    pub fn entries(&self) -> Vec<&'static Entry> {
        let links = self.links.entries().chain(self.directions.iter().copied()).chain(self.error_models.entries());
        let hosts = self.stacks.entries().chain(self.workloads.entries());
        self.policies.entries().chain(links).chain(self.middleboxes.entries()).chain(hosts).collect()
    }
}

/// What a link knows of its surroundings, in addition to its specification.
#[derive(Clone, Debug)]
pub struct Context {
    /// Seed of the run. The random streams of a link derive from it and the link's name.
    pub seed: u64,
    /// The mechanisms that exist.
    pub registry: Registry,
}

impl Context {
    /// That of the queue in front of a direction; `label` names its random streams, the rates are its own and the
    /// opposite one.
    pub fn of_queue(
        &self,
        label: &str,
        [rate_bps, opposite_rate_bps]: [Option<u64>; 2],
    ) -> backchannel_policies::Context {
        let (seed, label, policies) = (self.seed, label.to_owned(), self.registry.policies.clone());
        backchannel_policies::Context { seed, label, rate_bps, opposite_rate_bps, policies }
    }
}
