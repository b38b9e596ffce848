//! The machine: its size, cgroups, memory, huge pages, name and resolvers, and whether it is fit for pods
//! (`preflight`). Read from /proc, /sys and /etc when asked.

pub mod capacity;
pub mod cgroups;
pub mod checks;
pub mod cni_cache;
pub mod machine;
pub mod own_code;
