"""The rights of each role in Redis; docs/roles.py writes this.

A line begins with the names of roles and continues in indented lines: all of them have these
rights. Each command is followed by its least number of words. The patterns of keys lack the prefix
that all keys have.
"""

RIGHTS = """
producer listener scheduler operator admin viewer legacy: +auth/2 +client|tracking/3 +exec/1
    +exists/2 +hello/1 +hgetall/2 +lindex/3 +multi/1 +ping/1 +role/1 +select/2 +smembers/2 +time/1
    +type/2 +unwatch/1
producer listener scheduler operator admin legacy: +del/2 +hset/4 +lpush/3 +sadd/3 +srem/3 +watch/2
    +zadd/4 +zincrby/4
producer listener scheduler operator admin viewer: +hexists/3 +hget/3 +hmget/3 +llen/2 +lrange/4
    +scard/2 +srandmember/2 +zcard/2 +zmscore/3 +zrange/4
listener scheduler operator admin viewer legacy: +zrangebyscore/4
producer listener scheduler operator admin: +expire/3 +hdel/3 +hincrby/4 +ltrim/4 +persist/2
    +publish/3 +set/3 +unlink/2 +wait/3 +xadd/5 +zrem/3 &blueque
producer listener operator admin viewer: +smismember/3 +zcount/4
producer listener scheduler operator legacy: ~pending_tasks_* ~queues ~scheduled_tasks_* ~task_*
listener scheduler operator admin viewer: +lpos/3 +zscore/3
listener scheduler operator admin legacy: +lrem/4
producer operator admin viewer: +hstrlen/3 +mget/2
producer listener scheduler operator: ~after_* ~awaiting_* ~bad_* ~blocked_tasks_* ~dependents_*
    ~events_* ~group_* ~groups ~inputs_* ~joined_* ~line_* ~lines_* ~occurrences_* ~open_* ~orders_*
    ~schedule_* ~schedules ~spawned_* ~tags ~tasks_* ~unsettled_members ~unsettled_tasks ~waiting_*
    ~wake_*
listener scheduler operator admin: +expireat/3 +hincrbyfloat/4 +rpush/3
listener operator admin viewer: +xrevrange/4
listener scheduler operator legacy: ~complete_tasks_* ~failed_tasks_* ~reserved_tasks_*
producer admin legacy: +zremrangebyscore/4
producer listener scheduler: ~expiring %R~queue_*
listener operator admin: +copy/3
listener admin legacy: +rpoplpush/3
listener scheduler admin: +sismember/3
listener scheduler operator: ~cancelled_tasks_* ~checkpoint_* ~counted_tasks_* ~head_* ~history_*
    ~key_* ~listener_* ~lock_* ~log_* ~recent_* ~stats_* ~totals_*
listener scheduler legacy: ~listeners_* ~started_tasks_*
operator admin viewer: +info/1 +xrange/4 +xread/4 +zlexcount/4 +zrangebylex/4 +zrevrange/4
producer operator: ~fed_* ~feed_* ~feeder_* ~feeds_*
listener admin: +bzpopmin/3 +hkeys/2 +hsetnx/4
listener scheduler: ~nodes_* %R~archive_*
operator viewer: %R~*
producer: %R~cancelled_tasks_* %R~complete_tasks_* %R~counted_tasks_* %R~failed_tasks_* %R~key_*
    %R~listener_* %R~listeners_* %R~lock_* %R~reserved_tasks_* %R~started_tasks_*
listener: ~packing_*
operator: ~archive_* ~frozen_* ~queue_*
admin: +config|get/3 +hlen/2 +scan/2 +sscan/3 +ttl/2 +zscan/3 ~*
"""
