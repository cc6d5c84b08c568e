"""An agent in eight lines: its tools are what is granted to it now, asked for before every turn of its model.

usage: python examples/agents/eight_lines.py MODEL TASK

Takes TOOLCRIB_URL, TOOLCRIB_TOKEN, OPENAI_API_KEY and, for another endpoint than OpenAI's, OPENAI_BASE_URL.
"""

import os
import sys
from typing import Any

from openai import OpenAI, omit

from toolcrib_client import Toolcrib

crib, model = Toolcrib(os.environ["TOOLCRIB_URL"], lambda: os.environ["TOOLCRIB_TOKEN"]), OpenAI()
messages: list[Any] = [{"role": "user", "content": sys.argv[2]}]
reply: Any = None
while reply is None or reply.tool_calls:
    tools: Any = crib.openai_tools() or omit
    reply = (
        model.chat.completions.create(model=sys.argv[1], messages=messages, tools=tools).choices[0].message
    )
    messages += [reply, *map(crib.openai_answer, reply.tool_calls or ())]
print(reply.content)
