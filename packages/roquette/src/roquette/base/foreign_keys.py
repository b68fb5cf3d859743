"""Keys of Apache's property files that no config class has: those that are refused, and those without effect, with why.

With the config classes this decides what a key does: docs/reference/settings.md is made from both (tools/settings_page.py).
"""

from collections.abc import Mapping

from roquette.base.config import ForeignKeys, Unserved
from roquette.base.instead import ACL_IMPORT


def _unserved(names: str, harmless: str, meaning: str) -> dict[str, Unserved]:
    """Keys apart by blanks; `harmless`: the value, beside none at all, that asks for nothing."""
    return {name: Unserved(frozenset({"", harmless}), meaning) for name in names.split()}


def _idle(groups: Mapping[str, str]) -> dict[str, str]:
    """Key -> why, of why -> keys apart by blanks."""
    return {key: why for why, keys in groups.items() for key in keys.split()}


def _classes(key: str, *names: str) -> dict[str, Unserved]:
    """A key that names a class: Apache's own are taken without effect, one of somebody's own is not."""
    room = "authentication" if key.startswith("authentication") else "authorization"
    known = {f"org.apache.rocketmq.auth.{room}.{name}".lower() for name in names}
    return {key: Unserved(frozenset({"", *known}), f"{room} by a class of somebody's own")}


def _acting(key: str, meaning: str, how: str = "") -> dict[str, Unserved]:
    """A key of Apache's acting masters: a group that elects has a whole master again within seconds."""
    guide = f"{how}as docs/howto/three-machines.md shows"
    return {key: Unserved(frozenset({"", "false"}), meaning, "enableControllerMode", guide)}


_KINDS = ("Stateless", "Stateful")
_REPLICAS = "replication"
_PROTECTION = {
    **_classes("authenticationProvider", "provider.DefaultAuthenticationProvider"),
    **_classes("authenticationMetadataProvider", "provider.LocalAuthenticationMetadataProvider"),
    **_classes(
        "authenticationStrategy", *(f"strategy.{kind}AuthenticationStrategy" for kind in _KINDS)
    ),
    **_classes("authorizationProvider", "provider.DefaultAuthorizationProvider"),
    **_classes("authorizationMetadataProvider", "provider.LocalAuthorizationMetadataProvider"),
    **_classes(
        "authorizationStrategy", *(f"strategy.{kind}AuthorizationStrategy" for kind in _KINDS)
    ),
    **_unserved("migrateAuthFromV1Enabled", "false", "accounts of ACL 1.0 taken over at the start"),
    "aclEnable": Unserved(
        frozenset({"", "false"}),
        "access control 1.0",
        "authenticationEnabled",
        f"and take the accounts over: `{ACL_IMPORT}` (docs/howto/closed-cluster.md)",
    ),
    **dict.fromkeys(
        ("tlsEnable", "useTLS"), Unserved(frozenset({"", "false"}), "TLS", "tls.enable")
    ),
}
_FIXED = (
    *("tls.", "authenticationEnabled", "authenticationWhitelist", "authorizationEnabled"),
    *("authorizationWhitelist", "initAuthenticationUser", "innerClientAuthenticationCredentials"),
    *("clusterName", "haAllowedReplicas"),
)
_OF_EVERY_SERVER = {
    "the loop and the system decide: sockets, buffers and threads are not Netty's": """
        serverWorkerThreads serverCallbackExecutorThreads serverSelectorThreads serverSocketSndBufSize
        serverSocketRcvBufSize serverSocketBacklog serverPooledByteBufAllocatorEnable useEpollNativeSelector
        serverNettyWorkerGroupEnable writeBufferHighWaterMark writeBufferLowWaterMark clientWorkerThreads
        clientCallbackExecutorThreads clientSocketSndBufSize clientSocketRcvBufSize disableCallbackExecutor
        clientPooledByteBufAllocatorEnable disableNettyWorkerGroup""",
    "requests a client may have under way are bounded by the queues' capacities": """
        serverOnewaySemaphoreValue serverAsyncSemaphoreValue clientOnewaySemaphoreValue
        clientAsyncSemaphoreValue""",
    "a server always stops in order: it answers what it has taken, and closes": """
        enableShutdownGracefully shutdownWaitTimeSeconds enableReconnectForGoAway""",
    "connections to other servers have fixed times": """
        channelNotActiveInterval clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout connectTimeoutMillis
        maxReconnectIntervalTimeSeconds scanAvailableNameSrv isScanAvailableNameSrv""",
    "there is no proxy for connections to other servers": "socksProxyConfig",
    "paths and forbidden keys are fixed: no request changes any": "rocketmqHome configBlackList",
    "rules are compiled when they change; nothing is looked up later, or remembered for a time": """
        aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond userCacheExpiredSecond userCacheMaxNum
        userCacheRefreshSecond statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
        statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum""",
    "users and rules stand beside the other config files, and nothing else is told by a name": """
        authConfigPath configName""",
    "files of access control 1.0 are read by `roquette acl import` alone": "aclFile aclDirectory",
}
NAMESRV = ForeignKeys(
    {
        **_PROTECTION,
        **_unserved("enableControllerInNamesrv", "false", "a controller"),
        **_acting("supportActingMaster", "replicas shown as masters", "at the brokers, "),
    },
    _idle(
        {
            **_OF_EVERY_SERVER,
            "one thread serves all requests": "clientRequestThreadPoolNums defaultThreadPoolNums",
            "unregistrations are done at once, none waits in a queue": "unRegisterBrokerQueueCapacity",
            "settings changed by request last until the process ends": "configStorePath",
            "a name server serves its own clusters only": "clusterTest",
            "no replica acts as master, and a registration's answer names the master": """
                notifyMinBrokerIdChanged""",
        }
    ),
    _FIXED,
)
"""What a name server refuses or takes without effect."""

_ONE_LOOP = """
    grpcBossLoopNum grpcWorkerLoopNum enableGrpcEpoll grpcThreadPoolNums grpcThreadPoolQueueCapacity rocketmqMQClientNum
    grpcProducerThreadPoolNums grpcProducerThreadQueueCapacity grpcConsumerThreadPoolNums grpcConsumerThreadQueueCapacity
    grpcRouteThreadPoolNums grpcRouteThreadQueueCapacity grpcClientManagerThreadPoolNums
    grpcClientManagerThreadQueueCapacity grpcTransactionThreadPoolNums grpcTransactionThreadQueueCapacity
    producerProcessorThreadPoolNums producerProcessorThreadPoolQueueCapacity consumerProcessorThreadPoolNums
    consumerProcessorThreadPoolQueueCapacity topicRouteServiceThreadPoolNums topicRouteServiceThreadPoolQueueCapacity
    metadataThreadPoolNums metadataThreadPoolQueueCapacity transactionHeartbeatThreadPoolNums
    transactionHeartbeatThreadPoolQueueCapacity renewThreadPoolNums renewMaxThreadPoolNums renewThreadPoolQueueCapacity
    lockTimeoutMsInHandleGroup enablePrintJstack printJstackInMillis printThreadPoolStatusInMillis"""
PROXY = ForeignKeys(
    {
        **_PROTECTION,
        "proxyMode": Unserved(
            frozenset({"", "cluster"}), "a broker in this process: every `roquette broker` is one"
        ),
    },
    _idle(
        {
            **_OF_EVERY_SERVER,
            "one thread serves all requests": _ONE_LOOP,
            "proxies know nothing of each other": """
                proxyClusterName proxyName heartbeatSyncerTopicClusterName heartbeatSyncerThreadPoolNums
                heartbeatSyncerThreadPoolQueueCapacity heartbeatSyncerTopicName""",
            "endpoints are those that the client used": "localServeAddr useEndpointPortFromRequest remotingAccessAddr",
            "certificates are read again when they change": "tlsCertWatchIntervalMs",
        }
    ),
    _FIXED,
)
"""What a proxy refuses or takes without effect."""

_BROKER_IDLE = {
    "one thread serves all requests; reads and syncs of files have threads of their own": """
        ackMessageThreadPoolNums adminBrokerThreadPoolNums clientManageThreadPoolNums consumerManageThreadPoolNums
        endTransactionThreadPoolNums heartbeatThreadPoolNums litePullMessageThreadPoolNums
        loadBalanceProcessorThreadPoolNums processReplyMessageThreadPoolNums pullMessageThreadPoolNums
        putMessageFutureThreadPoolNums putThreadPoolQueueCapacity queryMessageThreadPoolNums sendMessageThreadPoolNums
        asyncSendEnable appendAckAsync appendCkAsync useReentrantLockWhenPutMessage useABSLock topicQueueLockNum
        spinLockCollisionRetreatOptimalDegree lockInStrictMode debugLockEnable osPageCacheBusyTimeOutMills
        maxAsyncPutMessageRequests enableFastChannelEventProcess batchDispatchRequestThreadPoolNums
        enableBuildConsumeQueueConcurrently timerGetMessageThreadNum timerPutMessageThreadNum
        timerReputServiceCorePoolSize timerReputServiceMaxPoolSize timerReputServiceQueueCapacity timerEnableDisruptor
        compactionThreadNum recoverConcurrently recoverThreadPoolNums popReviveConcurrency""",
    "replication has fixed ways for it": """
        haFlowControlEnable maxHaTransferByteInSecond syncFromLastFile
        syncMasterFlushOffsetWhenStartup offsetCheckInSlave replicasPerDiskPartition enableAutoInSyncReplicas
        skipPreOnline brokerElectionPriority
        controllerHeartBeatTimeoutMills fetchControllerAddrByDnsLookup checkSyncStateSetPeriod
        syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod syncControllerMetadataPeriod sendHeartbeatTimeoutMillis
        compatibleWithOldNameSrv enableSplitMetadata splitMetadataSize forwardTimeout
        storePathBrokerIdentity storePathEpochFile preferredLeaderId storePathDLedgerCommitLog diskFallRecorded
        brokerIP2 inBrokerContainer isBrokerContainer isInBrokerContainer""",
    "name servers forget a broker 120 s after its last sign of life, or when its connection ends": """
        brokerNotActiveTimeoutMillis""",
    "there is no RocksDB; a store or tables in it are refused": """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin combineAssignOffsetCQType
        combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
        combineCQUseRocksdbForLmq enableRocksDBLog iteratorWhenUseRocksdbConsumeQueue memTableFlushIntervalMs
        realTimePersistRocksDBConfig rocksdbCQDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency
        rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec useSeparateStorePathForRocksdbCQ
        useSingleRocksDBForAllConfigs persistConsumerOffsetIncrementally maxRocksDBIndexQueryDays indexRocksDBEnable
        indexFileReadEnable indexFileWriteEnable transRocksDBEnable transWriteOriginTransHalfEnable
        transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
        transactionCheckRocksdbQueueCapacity timerRocksDBEnable timerRocksDBPrecisionMs timerRocksDBRollIntervalHours
        timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
        timerRecallToTimeWheelEnable timerRecallToTimelineEnable""",
    "there are no lite topics; what would ask for light queues is refused": """
        enableLiteEventMode enableLitePopLog liteEventCheckInterval liteEventFullDispatchDelayTime
        liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable liteLagLatencyCollectEnable
        liteLagLatencyMetricsEnable liteLagLatencyTopK liteSubscriptionCheckInterval
        liteSubscriptionCheckTimeoutMills liteTtlCheckInterval maxClientEventCount maxLiteSubscriptionCount minLiteTTl
        enableLmqStats enableLmqQuota maxLmqConsumeQueueNum""",
    "topics are not compacted, and have no batch queues": """
        enableCompaction compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal maxOffsetMapSize
        enableBatchPush mapperFileSizeBatchConsumeQueue searchBcqByCacheEnable sharedByteBufferNum""",
    "metrics are at /metrics, all of them at all times; nothing is pushed": """
        metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
        metricLoggingExporterIntervalInMills metricsExportBatchMaxDataPoints metricsGrpcExporterHeader
        metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit
        enableConnectionMetrics enableLagAndDlqMetrics enableMessageStoreMetrics
        enablePopMetrics enableRemotingMetrics enableRequestMetrics enableStatsMetrics enableTransactionMetrics
        transactionMetricFlushInterval estimateAccumulation enableNotifyBeforePopCalculateLag""",
    "what is counted and logged is fixed": """
        accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats maxStatsIdleTimeInMinutes
        enableDetailStat commercialBaseCount commercialSizePerMsg isolateLogEnable printChannelGroups
        printChannelGroupsMinNum enablePopLog popConsumerKVServiceLog enableScheduleMessageStats
        timerProgressLogIntervalMs""",
    "POP keeps one kind of state, in the log (docs/decisions/0012-pop-state-from-the-log.md), at its own pace": """
        enablePopBatchAck enablePopBufferMerge enablePopMessageThreshold popInflightMessageThreshold
        enableSkipLongAwaitingAck popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut
        popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
        popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize popReviveMaxAttemptTimes
        popReviveMaxReturnSizePerRead popReviveSkipIfGroupAbsent reviveAckWaitMs reviveInterval reviveMaxSlow
        reviveScanTime skipWhenCKRePutReachMaxTimes enableNotifyAfterPopOrderLockRelease
        maxMessageFilterNumForNotification popFromRetryProbabilityForPriority priorityOrderAsc
        useSeparateRetryQueue""",
    "selectors are tried on the messages themselves, without bit maps": """
        enableCalcFilterBitMap expectConsumerNumUseFilter maxErrorRateOfBloomFilter filterDataCleanTimeSpan
        enableConsumeQueueExt mappedFileSizeConsumeQueueExt bitMapLengthConsumeQueueExt""",
    "a pull looks through a bounded number of messages": "maxFilterMessageSize maxConsumeQueueScan",
    "the broker takes its name servers from namesrvAddr": """
        fetchNamesrvAddrByAddressServer fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval
        updateNameServerAddrPeriod loadBalancePollNameServerInterval""",
    "a broker registers every time, and each new topic at once": "forceRegister enableSingleTopicRegister",
    "the log's cold part begins where accessMessageInMemoryHotRatio says; pages are not looked at": """
        coldDataScanEnable timerColdDataCheckIntervalMs enableNetWorkFlowControl""",
    "files are written by pwrite and read through maps (docs/decisions/0003-pwrite-and-map.md)": """
        commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
        transientStorePoolEnable transientStorePoolSize fastFailIfNoBufferInStorePool warmMapedFileEnable
        flushLeastPagesWhenWarmMapedFile writeWithoutMmap putConsumeQueueDataByFileChannel
        transferMsgByHeap wakeCommitWhenPutMessage timerWarmEnable""",
    "every flushIntervalCommitLog, or with each send under SYNC_FLUSH, all that was written is synced": """
        flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed wakeFlushWhenPutMessage
        enableRunningFlagsInFlush""",
    "files go at the pace of cleanResourceInterval, when nobody reads them": """
        deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly
        redeleteHangedFileInterval logicalDiskSpaceCleanForciblyThreshold
        correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval""",
    "recovery has one way (docs/decisions/0015-how-far-the-log-was-brought.md)": """
        checkCommitLogOffsetOnRecover commitLogRecoverMaxNum enableAcceleratedRecovery
        enableLogConsumeQueueRepeatedlyBuildWhenRecover recheckReputOffsetFromCq maxChecksumRange
        travelCqFileNumWhenGetMessage sampleCountThreshold sampleSteps messageIndexSafe""",
    "queue and index follow each message before it is answered": "readUnCommitted",
    "timer messages have one way of delivery, and their counts are always checked": """
        timerCheckMetricsWhen timerEnableCheckMetrics timerMetricSmallThreshold timerEnableRetryUntilSuccess
        timerSkipUnknownError timerWheelSnapshotFlush timerWheelSnapshotIntervalMs appendTopicForTimerDeleteKey
        enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked""",
    "a half message is marked as done with its own op message, at once": """
        transactionOpBatchInterval transactionOpMsgMaxSize""",
    "members are told at once": "realTimeNotifyConsumerChange",
    "subscriptions come from heartbeats, or with the pull; none is kept beside them": """
        subscriptionExpiredTimeout useStaticSubscription""",
    "producers are always registered": "enableRegisterProducer",
    "system groups always exist": "enableCreateSysGroup",
    "clients that broadcast keep their offsets themselves": """
        enableBroadcastOffsetStore broadcastOffsetExpireSecond broadcastOffsetExpireMaxSecond""",
    "each change of offsets moves their version": "consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep",
    "a record has the version its topic's length needs": "autoMessageVersionOnTopicLen",
    "a broker accepts as soon as it is ready": "disappearTimeAfterStart",
    "no request changes a path": "brokerConfigPath",
    "not a key of Apache's 5.5 either, but in files that go about": "abortFile storeCheckpoint",
    "no broker of Apache's 5.5 looks at it": """
        cleanOfflineBrokerInterval flushConsumerOffsetHistoryInterval highSpeedMode cleanSwapedMapInterval
        commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum dispatchCqCacheNum
        dispatchCqThreads dispatchFromSenderThread enableAsyncReput enableCleanExpiredOffset
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSwapEnable
        maxBatchDeleteFilesNum maxRecoveryCommitlogFiles maxSlaveResendLength pullBatchMaxMessageCount
        putMessageTimeout putMsgIndexHightWater timerInterceptDelayLevel dLegerGroup dLegerPeers dLegerSelfId""",
}
BROKER = ForeignKeys(
    {
        **_PROTECTION,
        **_unserved("duplicationEnable asyncLearner", "false", _REPLICAS),
        **_acting("enableSlaveActingMaster", "a replica that acts as master"),
        **_acting("enableRemoteEscape", "deliveries of a replica by way of other masters"),
        **_unserved("enableDLegerCommitLog enableDLedgerCommitLog", "false", "a DLedger log"),
        **_unserved("storeType", "default", "a store of another kind"),
        **_unserved("configManagerVersion", "v1", "tables of another kind"),
        **_unserved("storePathConsumeQueue", "", "consume queues in a place of their own"),
        **_unserved("storePathIndex", "", "an index in a place of its own"),
        **_unserved("readOnlyCommitLogStorePaths", "", "a log in several places"),
        **_unserved("messageStorePlugIn", "", "a store plug-in"),
        **_unserved("enableLmq enableMultiDispatch", "false", "light message queues"),
        **_unserved("enabledAppendPropCRC forceVerifyPropCRC", "false", "checksums of properties"),
    },
    _idle({**_OF_EVERY_SERVER, **_BROKER_IDLE}),
    _FIXED,
)
"""What a broker refuses or takes without effect."""
