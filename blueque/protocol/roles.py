"""The rights of each role in Redis; docs/roles.py writes this.

A line begins with the name of a role and goes on where lines are indented. Behind a command stands
how many words it has at least. The patterns of keys lack the prefix that all keys have.
"""

RIGHTS = """
producer +auth/2 +client|tracking/3 +del/2 +exec/1 +exists/2 +expire/3 +hdel/3 +hello/1 +hexists/3
    +hget/3 +hgetall/2 +hincrby/4 +hmget/3 +hset/4 +hstrlen/3 +lindex/3 +llen/2 +lpush/3 +lrange/4
    +ltrim/4 +mget/2 +multi/1 +persist/2 +ping/1 +publish/3 +role/1 +sadd/3 +scard/2 +select/2
    +set/3 +smembers/2 +smismember/3 +srandmember/2 +srem/3 +time/1 +type/2 +unlink/2 +unwatch/1
    +wait/3 +watch/2 +xadd/5 +zadd/4 +zcard/2 +zcount/4 +zincrby/4 +zmscore/3 +zrange/4 +zrem/3
    +zremrangebyscore/4 ~after_* ~awaiting_* ~bad_* ~blocked_tasks_* ~dependents_* ~events_*
    ~expiring ~fed_* ~feed_* ~feeder_* ~feeds_* ~group_* ~groups ~inputs_* ~joined_* ~line_*
    ~lines_* ~occurrences_* ~open_* ~orders_* ~pending_tasks_* ~queues ~schedule_*
    ~scheduled_tasks_* ~schedules ~spawned_* ~tags ~task_* ~tasks_* ~unsettled_members
    ~unsettled_tasks ~waiting_* ~wake_* %R~cancelled_tasks_* %R~complete_tasks_* %R~counted_tasks_*
    %R~failed_tasks_* %R~key_* %R~listener_* %R~listeners_* %R~lock_* %R~queue_* %R~reserved_tasks_*
    %R~started_tasks_* &blueque
listener +auth/2 +bzpopmin/3 +client|tracking/3 +copy/3 +del/2 +exec/1 +exists/2 +expire/3
    +expireat/3 +hdel/3 +hello/1 +hexists/3 +hget/3 +hgetall/2 +hincrby/4 +hincrbyfloat/4 +hkeys/2
    +hmget/3 +hset/4 +hsetnx/4 +lindex/3 +llen/2 +lpos/3 +lpush/3 +lrange/4 +lrem/4 +ltrim/4
    +multi/1 +persist/2 +ping/1 +publish/3 +role/1 +rpoplpush/3 +rpush/3 +sadd/3 +scard/2 +select/2
    +set/3 +sismember/3 +smembers/2 +smismember/3 +srandmember/2 +srem/3 +time/1 +type/2 +unlink/2
    +unwatch/1 +wait/3 +watch/2 +xadd/5 +xrevrange/4 +zadd/4 +zcard/2 +zcount/4 +zincrby/4
    +zmscore/3 +zrange/4 +zrangebyscore/4 +zrem/3 +zscore/3 ~after_* ~awaiting_* ~bad_*
    ~blocked_tasks_* ~cancelled_tasks_* ~checkpoint_* ~complete_tasks_* ~counted_tasks_*
    ~dependents_* ~events_* ~expiring ~failed_tasks_* ~group_* ~groups ~head_* ~history_* ~inputs_*
    ~joined_* ~key_* ~line_* ~lines_* ~listener_* ~listeners_* ~lock_* ~log_* ~nodes_*
    ~occurrences_* ~open_* ~orders_* ~packing_* ~pending_tasks_* ~queues ~recent_* ~reserved_tasks_*
    ~schedule_* ~scheduled_tasks_* ~schedules ~spawned_* ~started_tasks_* ~stats_* ~tags ~task_*
    ~tasks_* ~totals_* ~unsettled_members ~unsettled_tasks ~waiting_* ~wake_* %R~archive_*
    %R~queue_* &blueque
scheduler +auth/2 +client|tracking/3 +del/2 +exec/1 +exists/2 +expire/3 +expireat/3 +hdel/3 +hello/1
    +hexists/3 +hget/3 +hgetall/2 +hincrby/4 +hincrbyfloat/4 +hmget/3 +hset/4 +lindex/3 +llen/2
    +lpos/3 +lpush/3 +lrange/4 +lrem/4 +ltrim/4 +multi/1 +persist/2 +ping/1 +publish/3 +role/1
    +rpush/3 +sadd/3 +scard/2 +select/2 +set/3 +sismember/3 +smembers/2 +srandmember/2 +srem/3
    +time/1 +type/2 +unlink/2 +unwatch/1 +wait/3 +watch/2 +xadd/5 +zadd/4 +zcard/2 +zincrby/4
    +zmscore/3 +zrange/4 +zrangebyscore/4 +zrem/3 +zscore/3 ~after_* ~awaiting_* ~bad_*
    ~blocked_tasks_* ~cancelled_tasks_* ~checkpoint_* ~complete_tasks_* ~counted_tasks_*
    ~dependents_* ~events_* ~expiring ~failed_tasks_* ~group_* ~groups ~head_* ~history_* ~inputs_*
    ~joined_* ~key_* ~line_* ~lines_* ~listener_* ~listeners_* ~lock_* ~log_* ~nodes_*
    ~occurrences_* ~open_* ~orders_* ~pending_tasks_* ~queues ~recent_* ~reserved_tasks_*
    ~schedule_* ~scheduled_tasks_* ~schedules ~spawned_* ~started_tasks_* ~stats_* ~tags ~task_*
    ~tasks_* ~totals_* ~unsettled_members ~unsettled_tasks ~waiting_* ~wake_* %R~archive_*
    %R~queue_* &blueque
operator +auth/2 +client|tracking/3 +copy/3 +del/2 +exec/1 +exists/2 +expire/3 +expireat/3 +hdel/3
    +hello/1 +hexists/3 +hget/3 +hgetall/2 +hincrby/4 +hincrbyfloat/4 +hmget/3 +hset/4 +hstrlen/3
    +info/1 +lindex/3 +llen/2 +lpos/3 +lpush/3 +lrange/4 +lrem/4 +ltrim/4 +mget/2 +multi/1
    +persist/2 +ping/1 +publish/3 +role/1 +rpush/3 +sadd/3 +scard/2 +select/2 +set/3 +smembers/2
    +smismember/3 +srandmember/2 +srem/3 +time/1 +type/2 +unlink/2 +unwatch/1 +wait/3 +watch/2
    +xadd/5 +xrange/4 +xread/4 +xrevrange/4 +zadd/4 +zcard/2 +zcount/4 +zincrby/4 +zlexcount/4
    +zmscore/3 +zrange/4 +zrangebylex/4 +zrangebyscore/4 +zrem/3 +zrevrange/4 +zscore/3 ~after_*
    ~archive_* ~awaiting_* ~bad_* ~blocked_tasks_* ~cancelled_tasks_* ~checkpoint_*
    ~complete_tasks_* ~counted_tasks_* ~dependents_* ~events_* ~failed_tasks_* ~fed_* ~feed_*
    ~feeder_* ~feeds_* ~frozen_* ~group_* ~groups ~head_* ~history_* ~inputs_* ~joined_* ~key_*
    ~line_* ~lines_* ~listener_* ~lock_* ~log_* ~occurrences_* ~open_* ~orders_* ~pending_tasks_*
    ~queue_* ~queues ~recent_* ~reserved_tasks_* ~schedule_* ~scheduled_tasks_* ~schedules
    ~spawned_* ~stats_* ~tags ~task_* ~tasks_* ~totals_* ~unsettled_members ~unsettled_tasks
    ~waiting_* ~wake_* %R~* &blueque
admin +auth/2 +bzpopmin/3 +client|tracking/3 +config|get/3 +copy/3 +del/2 +exec/1 +exists/2
    +expire/3 +expireat/3 +hdel/3 +hello/1 +hexists/3 +hget/3 +hgetall/2 +hincrby/4 +hincrbyfloat/4
    +hkeys/2 +hlen/2 +hmget/3 +hset/4 +hsetnx/4 +hstrlen/3 +info/1 +lindex/3 +llen/2 +lpos/3
    +lpush/3 +lrange/4 +lrem/4 +ltrim/4 +mget/2 +multi/1 +persist/2 +ping/1 +publish/3 +role/1
    +rpoplpush/3 +rpush/3 +sadd/3 +scan/2 +scard/2 +select/2 +set/3 +sismember/3 +smembers/2
    +smismember/3 +srandmember/2 +srem/3 +sscan/3 +time/1 +ttl/2 +type/2 +unlink/2 +unwatch/1
    +wait/3 +watch/2 +xadd/5 +xrange/4 +xread/4 +xrevrange/4 +zadd/4 +zcard/2 +zcount/4 +zincrby/4
    +zlexcount/4 +zmscore/3 +zrange/4 +zrangebylex/4 +zrangebyscore/4 +zrem/3 +zremrangebyscore/4
    +zrevrange/4 +zscan/3 +zscore/3 ~* &blueque
viewer +auth/2 +client|tracking/3 +exec/1 +exists/2 +hello/1 +hexists/3 +hget/3 +hgetall/2 +hmget/3
    +hstrlen/3 +info/1 +lindex/3 +llen/2 +lpos/3 +lrange/4 +mget/2 +multi/1 +ping/1 +role/1 +scard/2
    +select/2 +smembers/2 +smismember/3 +srandmember/2 +time/1 +type/2 +unwatch/1 +xrange/4 +xread/4
    +xrevrange/4 +zcard/2 +zcount/4 +zlexcount/4 +zmscore/3 +zrange/4 +zrangebylex/4
    +zrangebyscore/4 +zrevrange/4 +zscore/3 %R~*
legacy +auth/2 +client|tracking/3 +del/2 +exec/1 +exists/2 +hello/1 +hgetall/2 +hset/4 +lindex/3
    +lpush/3 +lrem/4 +multi/1 +ping/1 +role/1 +rpoplpush/3 +sadd/3 +select/2 +smembers/2 +srem/3
    +time/1 +type/2 +unwatch/1 +watch/2 +zadd/4 +zincrby/4 +zrangebyscore/4 +zremrangebyscore/4
    ~complete_tasks_* ~failed_tasks_* ~listeners_* ~pending_tasks_* ~queues ~reserved_tasks_*
    ~scheduled_tasks_* ~started_tasks_* ~task_*
"""
