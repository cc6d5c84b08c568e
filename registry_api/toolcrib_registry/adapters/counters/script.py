"""The script that charges a call in Redis or Valkey: what it is asked, what it answers. It selects as `limits.selection` does."""

from __future__ import annotations

import math

import orjson

from toolcrib_registry.limits.counters import Charge, Groups, Limit, Shortage

# One call's charge, all of it or nothing, by the server's own clock in microseconds: replicas' clocks do not matter.
# KEYS: of each account its day, its minute and its slots. ARGV[1]: what `question` makes.
# Windows are lists of moments, the latest first; slots are a set by the end of their leases. An entry that must leave
# before there is room is at the place of the limit, so a window is never counted through.
CHARGE = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local asked = cjson.decode(ARGV[1])
local spans = {86400000000, 60000000}

local function shortage(account)
  local limits, at = asked.limits[account], 3 * account - 3
  if limits[3] > 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[at + 3], '-inf', now)
    local full = redis.call('ZCARD', KEYS[at + 3]) >= limits[3]
    if full and not redis.call('ZSCORE', KEYS[at + 3], asked.slot) then return {3, 0} end
  end
  for window = 1, 2 do
    local moment = limits[window] > 0 and redis.call('LINDEX', KEYS[at + window], limits[window] - 1)
    local wait = moment and tonumber(moment) + spans[window] - now
    if wait and wait >= 0 then return {window, wait} end
  end
  return false
end

local known, places, charged = {}, {}, {}
for number, group in ipairs(asked.groups) do
  local soonest
  for place, account in ipairs(group) do
    if account > 0 and known[account] == nil then known[account] = shortage(account) end
    local lacks = known[account]
    if not lacks then
      places[number] = place - 1
      if account > 0 then charged[account] = true end
      break
    end
    if not soonest or lacks[2] < soonest[2] then soonest = {lacks[1], lacks[2], number - 1, place - 1} end
  end
  if not places[number] then return {0, soonest} end
end

for account in pairs(charged) do
  local limits, at = asked.limits[account], 3 * account - 3
  for window = 1, 2 do
    if limits[window] > 0 then
      redis.call('LPUSH', KEYS[at + window], string.format('%.0f', now))
      redis.call('LTRIM', KEYS[at + window], 0, limits[window] - 1)
      redis.call('PEXPIRE', KEYS[at + window], spans[window] / 1000 + 1000)
    end
  end
  if limits[3] > 0 then
    redis.call('ZADD', KEYS[at + 3], now + asked.lease, asked.slot)
    local last = redis.call('ZRANGE', KEYS[at + 3], -1, -1, 'WITHSCORES')
    redis.call('PEXPIREAT', KEYS[at + 3], string.format('%.0f', tonumber(last[2]) / 1000 + 1000))
  end
end
return {1, places}
"""
_LIMITS = (Limit.PER_DAY, Limit.PER_MINUTE, Limit.CONCURRENT)
"""In the script's order."""
_LONGEST = (86_401, 61, 1)
"""Seconds: a server's clock that was set back must not send anybody away for longer."""


def question(groups: Groups, slot: str, lease: float) -> tuple[list[str], bytes]:
    """The accounts with limits, and what the script reads.

    Each by its number from 1 on; 0 is a binding without limits, or no limit.
    """
    demands = {d.account: d.limits for group in groups for d in group if d.limits is not None}
    numbers = {account: number for number, account in enumerate(demands, 1)}
    asked = {
        "slot": slot,
        "lease": int(lease * 1e6),
        "limits": [[m.per_day or 0, m.per_minute or 0, m.concurrent or 0] for m in demands.values()],
        "groups": [[0 if d.limits is None else numbers[d.account] for d in group] for group in groups],
    }
    return list(demands), orjson.dumps(asked)


def answer(groups: Groups, slot: str, told: tuple[int, list[int]]) -> Charge | Shortage:
    """What the script answered."""
    counted, numbers = told
    if counted:
        chosen = [group[place] for group, place in zip(groups, numbers, strict=True)]
        return Charge(tuple(numbers), bounding([chosen]), slot)
    which, wait, group, place = numbers
    return Shortage(_LIMITS[which - 1], min(max(1, math.ceil(wait / 1e6)), _LONGEST[which - 1]), group, place)


def bounding(groups: Groups) -> tuple[str, ...]:
    """The accounts that bound concurrency."""
    accounts = [d.account for group in groups for d in group if d.limits and d.limits.concurrent is not None]
    return tuple(dict.fromkeys(accounts))
