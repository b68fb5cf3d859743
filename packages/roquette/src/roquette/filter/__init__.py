"""Filters, the messages a subscription wants: tag expressions and SQL92. Pure: texts and property bytes in, answers out."""
