//! The rules, told as stories.

mod first;
