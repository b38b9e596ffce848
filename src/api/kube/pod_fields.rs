//! The messages of a Pod in the public API (core/v1): see `pod_message`.

pub(super) const TABLE: &str = "\
AWSElasticBlockStoreVolumeSource 1:volumeID:s 2:fsType:s 3:partition:i 4:readOnly:b
Affinity 1:nodeAffinity:NodeAffinity 2:podAffinity:PodAffinity 3:podAntiAffinity:PodAntiAffinity
AppArmorProfile 1:type:s 2:localhostProfile:S
AzureDiskVolumeSource 1:diskName:s 2:diskURI:s 3:cachingMode:S 4:fsType:S 5:readOnly:B 6:kind:S
AzureFileVolumeSource 1:secretName:s 2:shareName:s 3:readOnly:b
CSIVolumeSource 1:driver:s 2:readOnly:B 3:fsType:S 4:volumeAttributes:{}s 5:nodePublishSecretRef:LocalObjectReference
Capabilities 1:add:[]s 2:drop:[]s
CephFSVolumeSource 1:monitors:[]s 2:path:s 3:user:s 4:secretFile:s 5:secretRef:LocalObjectReference 6:readOnly:b
CinderVolumeSource 1:volumeID:s 2:fsType:s 3:readOnly:b 4:secretRef:LocalObjectReference
ClusterTrustBundleProjection 1:name:S 2:signerName:S 3:labelSelector:LabelSelector 4:path:s 5:optional:B 6:user:I
ConfigMapEnvSource 1::LocalObjectReference 2:optional:B
ConfigMapKeySelector 1::LocalObjectReference 2:key:s 3:optional:B
ConfigMapProjection 1::LocalObjectReference 2:items:[]KeyToPath 4:optional:B
ConfigMapVolumeSource 1::LocalObjectReference 2:items:[]KeyToPath 3:defaultMode:I 4:optional:B 5:defaultUser:I
Container 1:name:s 2:image:s 3:command:[]s 4:args:[]s 5:workingDir:s 6:ports:[]ContainerPort 7:env:[]EnvVar \
    8:resources:ResourceRequirements 9:volumeMounts:[]VolumeMount 10:livenessProbe:Probe 11:readinessProbe:Probe \
    12:lifecycle:Lifecycle 13:terminationMessagePath:s 14:imagePullPolicy:s 15:securityContext:SecurityContext \
    16:stdin:b 17:stdinOnce:b 18:tty:b 19:envFrom:[]EnvFromSource 20:terminationMessagePolicy:s \
    21:volumeDevices:[]VolumeDevice 22:startupProbe:Probe 23:resizePolicy:[]ContainerResizePolicy 24:restartPolicy:S \
    25:restartPolicyRules:[]ContainerRestartRule
ContainerPort 1:name:s 2:hostPort:i 3:containerPort:i 4:protocol:s 5:hostIP:s
ContainerResizePolicy 1:resourceName:s 2:restartPolicy:s
ContainerRestartRule 1:action:s 2:exitCodes:ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes 1:operator:s 2:values:[]i
DownwardAPIProjection 1:items:[]DownwardAPIVolumeFile
DownwardAPIVolumeFile 1:path:s 2:fieldRef:ObjectFieldSelector 3:resourceFieldRef:ResourceFieldSelector 4:mode:I 5:user:I
DownwardAPIVolumeSource 1:items:[]DownwardAPIVolumeFile 2:defaultMode:I 3:defaultUser:I
EmptyDirVolumeSource 1:medium:s 2:sizeLimit:Quantity 3:mode:I
EnvFromSource 1:prefix:s 2:configMapRef:ConfigMapEnvSource 3:secretRef:SecretEnvSource
EnvVar 1:name:s 2:value:s 3:valueFrom:EnvVarSource
EnvVarSource 1:fieldRef:ObjectFieldSelector 2:resourceFieldRef:ResourceFieldSelector \
    3:configMapKeyRef:ConfigMapKeySelector 4:secretKeyRef:SecretKeySelector 5:fileKeyRef:FileKeySelector
EphemeralContainer 1::EphemeralContainerCommon 2:targetContainerName:s
EphemeralContainerCommon 1:name:s 2:image:s 3:command:[]s 4:args:[]s 5:workingDir:s 6:ports:[]ContainerPort \
    7:env:[]EnvVar 8:resources:ResourceRequirements 9:volumeMounts:[]VolumeMount 10:livenessProbe:Probe \
    11:readinessProbe:Probe 12:lifecycle:Lifecycle 13:terminationMessagePath:s 14:imagePullPolicy:s \
    15:securityContext:SecurityContext 16:stdin:b 17:stdinOnce:b 18:tty:b 19:envFrom:[]EnvFromSource \
    20:terminationMessagePolicy:s 21:volumeDevices:[]VolumeDevice 22:startupProbe:Probe \
    23:resizePolicy:[]ContainerResizePolicy 24:restartPolicy:S 25:restartPolicyRules:[]ContainerRestartRule
EphemeralVolumeSource 1:volumeClaimTemplate:PersistentVolumeClaimTemplate
EvictionResponder 1:name:s 2:priority:I
ExecAction 1:command:[]s
FCVolumeSource 1:targetWWNs:[]s 2:lun:I 3:fsType:s 4:readOnly:b 5:wwids:[]s
FileKeySelector 1:volumeName:s 2:path:s 3:key:s 4:optional:B
FlexVolumeSource 1:driver:s 2:fsType:s 3:secretRef:LocalObjectReference 4:readOnly:b 5:options:{}s
FlockerVolumeSource 1:datasetName:s 2:datasetUUID:s
GCEPersistentDiskVolumeSource 1:pdName:s 2:fsType:s 3:partition:i 4:readOnly:b
GRPCAction 1:port:i 2:service:S 3:mode:S
GitRepoVolumeSource 1:repository:s 2:revision:s 3:directory:s
GlusterfsVolumeSource 1:endpoints:s 2:path:s 3:readOnly:b
HTTPGetAction 1:path:s 2:port:IntOrString 3:host:s 4:scheme:s 5:httpHeaders:[]HTTPHeader 6:protocol:S
HTTPHeader 1:name:s 2:value:s
HostAlias 1:ip:s 2:hostnames:[]s
HostPathVolumeSource 1:path:s 2:type:S
ISCSIVolumeSource 1:targetPortal:s 2:iqn:s 3:lun:i 4:iscsiInterface:s 5:fsType:s 6:readOnly:b 7:portals:[]s \
    8:chapAuthDiscovery:b 10:secretRef:LocalObjectReference 11:chapAuthSession:b 12:initiatorName:S
ImageVolumeSource 1:reference:s 2:pullPolicy:s
KeyToPath 1:key:s 2:path:s 3:mode:I 4:user:I
LabelSelector 1:matchLabels:{}s 2:matchExpressions:[]LabelSelectorRequirement
LabelSelectorRequirement 1:key:s 2:operator:s 3:values:[]s
Lifecycle 1:postStart:LifecycleHandler 2:preStop:LifecycleHandler 3:stopSignal:S
LifecycleHandler 1:exec:ExecAction 2:httpGet:HTTPGetAction 3:tcpSocket:TCPSocketAction 4:sleep:SleepAction
LocalObjectReference 1:name:s
NFSVolumeSource 1:server:s 2:path:s 3:readOnly:b
NodeAffinity 1:requiredDuringSchedulingIgnoredDuringExecution:NodeSelector \
    2:preferredDuringSchedulingIgnoredDuringExecution:[]PreferredSchedulingTerm
NodeSelector 1:nodeSelectorTerms:[]NodeSelectorTerm
NodeSelectorRequirement 1:key:s 2:operator:s 3:values:[]s
NodeSelectorTerm 1:matchExpressions:[]NodeSelectorRequirement 2:matchFields:[]NodeSelectorRequirement
ObjectFieldSelector 1:apiVersion:s 2:fieldPath:s
ObjectMeta 1:name:s 2:generateName:s 3:namespace:s 4:selfLink:s 5:uid:s 6:resourceVersion:s 7:generation:i \
    8:creationTimestamp:- 9:deletionTimestamp:- 10:deletionGracePeriodSeconds:I 11:labels:{}s 12:annotations:{}s \
    13:ownerReferences:- 14:finalizers:[]s 17:managedFields:-
PersistentVolumeClaimSpec 1:accessModes:[]s 2:resources:VolumeResourceRequirements 3:volumeName:s \
    4:selector:LabelSelector 5:storageClassName:S 6:volumeMode:S 7:dataSource:TypedLocalObjectReference \
    8:dataSourceRef:TypedObjectReference 9:volumeAttributesClassName:S
PersistentVolumeClaimTemplate 1:metadata:ObjectMeta 2:spec:PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource 1:claimName:s 2:readOnly:b
PhotonPersistentDiskVolumeSource 1:pdID:s 2:fsType:s
Pod 1:metadata:ObjectMeta 2:spec:PodSpec 3:status:-
PodAffinity 1:requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm \
    2:preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm
PodAffinityTerm 1:labelSelector:LabelSelector 2:namespaces:[]s 3:topologyKey:s 4:namespaceSelector:LabelSelector \
    5:matchLabelKeys:[]s 6:mismatchLabelKeys:[]s
PodAntiAffinity 1:requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm \
    2:preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm
PodCertificateProjection 1:signerName:s 2:keyType:s 3:maxExpirationSeconds:I 4:credentialBundlePath:s 5:keyPath:s \
    6:certificateChainPath:s 7:userAnnotations:{}s 8:user:I
PodDNSConfig 1:nameservers:[]s 2:searches:[]s 3:options:[]PodDNSConfigOption
PodDNSConfigOption 1:name:s 2:value:S
PodOS 1:name:s
PodReadinessGate 1:conditionType:s
PodResourceClaim 1:name:s 3:resourceClaimName:S 4:resourceClaimTemplateName:S
PodSchedulingGate 1:name:s
PodSchedulingGroup 1:podGroupName:S
PodSecurityContext 1:seLinuxOptions:SELinuxOptions 2:runAsUser:I 3:runAsNonRoot:B 4:supplementalGroups:[]i 5:fsGroup:I \
    6:runAsGroup:I 7:sysctls:[]Sysctl 8:windowsOptions:WindowsSecurityContextOptions 9:fsGroupChangePolicy:S \
    10:seccompProfile:SeccompProfile 11:appArmorProfile:AppArmorProfile 12:supplementalGroupsPolicy:S \
    13:seLinuxChangePolicy:S
PodSpec 1:volumes:[]Volume 2:containers:[]Container 3:restartPolicy:s 4:terminationGracePeriodSeconds:I \
    5:activeDeadlineSeconds:I 6:dnsPolicy:s 7:nodeSelector:{}s 8:serviceAccountName:s 9:serviceAccount:s 10:nodeName:s \
    11:hostNetwork:b 12:hostPID:b 13:hostIPC:b 14:securityContext:PodSecurityContext \
    15:imagePullSecrets:[]LocalObjectReference 16:hostname:s 17:subdomain:s 18:affinity:Affinity 19:schedulerName:s \
    20:initContainers:[]Container 21:automountServiceAccountToken:B 22:tolerations:[]Toleration \
    23:hostAliases:[]HostAlias 24:priorityClassName:s 25:priority:I 26:dnsConfig:PodDNSConfig \
    27:shareProcessNamespace:B 28:readinessGates:[]PodReadinessGate 29:runtimeClassName:S 30:enableServiceLinks:B \
    31:preemptionPolicy:S 32:overhead:{}Quantity 33:topologySpreadConstraints:[]TopologySpreadConstraint \
    34:ephemeralContainers:[]EphemeralContainer 35:setHostnameAsFQDN:B 36:os:PodOS 37:hostUsers:B \
    38:schedulingGates:[]PodSchedulingGate 39:resourceClaims:[]PodResourceClaim 40:resources:ResourceRequirements \
    41:hostnameOverride:S 43:schedulingGroup:PodSchedulingGroup 44:evictionResponders:[]EvictionResponder
PortworxVolumeSource 1:volumeID:s 2:fsType:s 3:readOnly:b
PreferredSchedulingTerm 1:weight:i 2:preference:NodeSelectorTerm
Probe 1::ProbeHandler 2:initialDelaySeconds:i 3:timeoutSeconds:i 4:periodSeconds:i 5:successThreshold:i \
    6:failureThreshold:i 7:terminationGracePeriodSeconds:I
ProbeHandler 1:exec:ExecAction 2:httpGet:HTTPGetAction 3:tcpSocket:TCPSocketAction 4:grpc:GRPCAction
ProjectedVolumeSource 1:sources:[]VolumeProjection 2:defaultMode:I 3:defaultUser:I
QuobyteVolumeSource 1:registry:s 2:volume:s 3:readOnly:b 4:user:s 5:group:s 6:tenant:s
RBDVolumeSource 1:monitors:[]s 2:image:s 3:fsType:s 4:pool:s 5:user:s 6:keyring:s 7:secretRef:LocalObjectReference \
    8:readOnly:b
ResourceClaim 1:name:s 2:request:s
ResourceFieldSelector 1:containerName:s 2:resource:s 3:divisor:Quantity
ResourceRequirements 1:limits:{}Quantity 2:requests:{}Quantity 3:claims:[]ResourceClaim
SELinuxOptions 1:user:s 2:role:s 3:type:s 4:level:s
ScaleIOVolumeSource 1:gateway:s 2:system:s 3:secretRef:LocalObjectReference 4:sslEnabled:b 5:protectionDomain:s \
    6:storagePool:s 7:storageMode:s 8:volumeName:s 9:fsType:s 10:readOnly:b
SeccompProfile 1:type:s 2:localhostProfile:S
SecretEnvSource 1::LocalObjectReference 2:optional:B
SecretKeySelector 1::LocalObjectReference 2:key:s 3:optional:B
SecretProjection 1::LocalObjectReference 2:items:[]KeyToPath 4:optional:B
SecretVolumeSource 1:secretName:s 2:items:[]KeyToPath 3:defaultMode:I 4:optional:B 5:defaultUser:I
SecurityContext 1:capabilities:Capabilities 2:privileged:B 3:seLinuxOptions:SELinuxOptions 4:runAsUser:I \
    5:runAsNonRoot:B 6:readOnlyRootFilesystem:B 7:allowPrivilegeEscalation:B 8:runAsGroup:I 9:procMount:S \
    10:windowsOptions:WindowsSecurityContextOptions 11:seccompProfile:SeccompProfile \
    12:appArmorProfile:AppArmorProfile
ServiceAccountTokenProjection 1:audience:s 2:expirationSeconds:I 3:path:s 4:user:I
SleepAction 1:seconds:i
StorageOSVolumeSource 1:volumeName:s 2:volumeNamespace:s 3:fsType:s 4:readOnly:b 5:secretRef:LocalObjectReference
Sysctl 1:name:s 2:value:s
TCPSocketAction 1:port:IntOrString 2:host:s
Toleration 1:key:s 2:operator:s 3:value:s 4:effect:s 5:tolerationSeconds:I
TopologySpreadConstraint 1:maxSkew:i 2:topologyKey:s 3:whenUnsatisfiable:s 4:labelSelector:LabelSelector \
    5:minDomains:I 6:nodeAffinityPolicy:S 7:nodeTaintsPolicy:S 8:matchLabelKeys:[]s
TypedLocalObjectReference 1:apiGroup:S 2:kind:s 3:name:s
TypedObjectReference 1:apiGroup:S 2:kind:s 3:name:s 4:namespace:S
Volume 1:name:s 2::VolumeSource
VolumeDevice 1:name:s 2:devicePath:s
VolumeMount 1:name:s 2:readOnly:b 3:mountPath:s 4:subPath:s 5:mountPropagation:S 6:subPathExpr:s 7:recursiveReadOnly:S \
    8:bindMountOptions:[]s
VolumeProjection 1:secret:SecretProjection 2:downwardAPI:DownwardAPIProjection 3:configMap:ConfigMapProjection \
    4:serviceAccountToken:ServiceAccountTokenProjection 5:clusterTrustBundle:ClusterTrustBundleProjection \
    6:podCertificate:PodCertificateProjection
VolumeResourceRequirements 1:limits:{}Quantity 2:requests:{}Quantity
VolumeSource 1:hostPath:HostPathVolumeSource 2:emptyDir:EmptyDirVolumeSource \
    3:gcePersistentDisk:GCEPersistentDiskVolumeSource 4:awsElasticBlockStore:AWSElasticBlockStoreVolumeSource \
    5:gitRepo:GitRepoVolumeSource 6:secret:SecretVolumeSource 7:nfs:NFSVolumeSource 8:iscsi:ISCSIVolumeSource \
    9:glusterfs:GlusterfsVolumeSource 10:persistentVolumeClaim:PersistentVolumeClaimVolumeSource \
    11:rbd:RBDVolumeSource 12:flexVolume:FlexVolumeSource 13:cinder:CinderVolumeSource 14:cephfs:CephFSVolumeSource \
    15:flocker:FlockerVolumeSource 16:downwardAPI:DownwardAPIVolumeSource 17:fc:FCVolumeSource \
    18:azureFile:AzureFileVolumeSource 19:configMap:ConfigMapVolumeSource \
    20:vsphereVolume:VsphereVirtualDiskVolumeSource 21:quobyte:QuobyteVolumeSource 22:azureDisk:AzureDiskVolumeSource \
    23:photonPersistentDisk:PhotonPersistentDiskVolumeSource 24:portworxVolume:PortworxVolumeSource \
    25:scaleIO:ScaleIOVolumeSource 26:projected:ProjectedVolumeSource 27:storageos:StorageOSVolumeSource \
    28:csi:CSIVolumeSource 29:ephemeral:EphemeralVolumeSource 30:image:ImageVolumeSource
VsphereVirtualDiskVolumeSource 1:volumePath:s 2:fsType:s 3:storagePolicyName:s 4:storagePolicyID:s
WeightedPodAffinityTerm 1:weight:i 2:podAffinityTerm:PodAffinityTerm
WindowsSecurityContextOptions 1:gmsaCredentialSpecName:S 2:gmsaCredentialSpec:S 3:runAsUserName:S 4:hostProcess:B
";
