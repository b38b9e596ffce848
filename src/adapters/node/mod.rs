//! The machine: its size, cgroups, memory, huge pages, name and resolvers. Read from /proc, /sys and /etc when asked.

pub mod capacity;
pub mod cgroups;
pub mod machine;
pub mod own_code;
