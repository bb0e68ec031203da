//! What `./backchannel new` makes. Each module becomes the `lib.rs` of a crate of its own, with the manifest of
//! `manifest.toml` and the campaign of `campaigns`; `experiments/own/templates.py` puts the user's name for `my-crate`,
//! `my_crate` and `MyCrate`. They are a crate of the workspace so that the suite compiles, lints and tests them.

pub mod controller;
pub mod link;
pub mod middlebox;
pub mod policy;
pub mod workload;
