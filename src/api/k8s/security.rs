//! The rights of the processes of a pod.

use super::definition::kubernetes_types;

kubernetes_types! {
    PodSecurityContext {
        app_armor_profile: Option<AppArmorProfile> = "appArmorProfile",
        fs_group: Option<i64> = "fsGroup",
        fs_group_change_policy: Option<String> = "fsGroupChangePolicy",
        run_as_group: Option<i64> = "runAsGroup",
        run_as_non_root: Option<bool> = "runAsNonRoot",
        run_as_user: Option<i64> = "runAsUser",
        se_linux_change_policy: Option<String> = "seLinuxChangePolicy",
        se_linux_options: Option<SELinuxOptions> = "seLinuxOptions",
        seccomp_profile: Option<SeccompProfile> = "seccompProfile",
        supplemental_groups: Option<Vec<i64>> = "supplementalGroups",
        supplemental_groups_policy: Option<String> = "supplementalGroupsPolicy",
        sysctls: Option<Vec<Sysctl>> = "sysctls",
        windows_options: Option<WindowsSecurityContextOptions> = "windowsOptions",
    }

    SecurityContext {
        allow_privilege_escalation: Option<bool> = "allowPrivilegeEscalation",
        app_armor_profile: Option<AppArmorProfile> = "appArmorProfile",
        capabilities: Option<Capabilities> = "capabilities",
        privileged: Option<bool> = "privileged",
        proc_mount: Option<String> = "procMount",
        read_only_root_filesystem: Option<bool> = "readOnlyRootFilesystem",
        run_as_group: Option<i64> = "runAsGroup",
        run_as_non_root: Option<bool> = "runAsNonRoot",
        run_as_user: Option<i64> = "runAsUser",
        se_linux_options: Option<SELinuxOptions> = "seLinuxOptions",
        seccomp_profile: Option<SeccompProfile> = "seccompProfile",
        windows_options: Option<WindowsSecurityContextOptions> = "windowsOptions",
    }

    Capabilities {
        add: Option<Vec<String>> = "add",
        drop: Option<Vec<String>> = "drop",
    }

    AppArmorProfile {
        localhost_profile: Option<String> = "localhostProfile",
        type_: String = "type",
    }

    SeccompProfile {
        localhost_profile: Option<String> = "localhostProfile",
        type_: String = "type",
    }

    SELinuxOptions {
        level: Option<String> = "level",
        role: Option<String> = "role",
        type_: Option<String> = "type",
        user: Option<String> = "user",
    }

    Sysctl {
        name: String = "name",
        value: String = "value",
    }

    WindowsSecurityContextOptions {
        gmsa_credential_spec: Option<String> = "gmsaCredentialSpec",
        gmsa_credential_spec_name: Option<String> = "gmsaCredentialSpecName",
        host_process: Option<bool> = "hostProcess",
        run_as_user_name: Option<String> = "runAsUserName",
    }
}
