//! What is kept of files, as their leases allow: R lets what was read be kept, W
//! lets what is written be gathered, H lets a closed file stay open.

mod content;
mod data;
mod failures;
mod keeper;
mod pages;

pub(crate) use content::{Content, Course};
pub(crate) use failures::Heard;
pub(crate) use keeper::Keeper;
