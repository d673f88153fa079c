//! The host, its hardware and its configuration.

use crate::rule::rules;

rules! {}
