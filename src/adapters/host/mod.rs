//! Reads facts about the machine: its capacity, cgroups, name and resolvers. Checks whether pods can run on it
//! (`checks`). Each call reads /proc, /sys and /etc again.

pub mod capacity;
pub mod checks;
pub mod cni_cache;
pub mod disk_use;
pub mod file_system;
pub mod levels;
pub mod machine;
pub mod machine_identity;
pub mod memory_pressure;
pub mod time_zone;
