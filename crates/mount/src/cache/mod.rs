//! What is kept of files, as their leases allow: R lets what was read be kept, W
//! lets what is written be gathered, H lets a closed file stay open.

mod content;
mod pages;

pub(crate) use content::{Content, Course, Keeper};
